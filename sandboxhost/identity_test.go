package sandboxhost_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"testing"

	"github.com/controld/controld/sandboxhost"
)

// TestCertificateTenant: P1.10.
func TestCertificateTenant(t *testing.T) {
	for name, tc := range map[string]struct {
		cn   string
		uris []string
		want string // empty: none
	}{
		"common name":       {"acme", nil, "acme"},
		"URI":               {"someone", []string{"controld://tenant/acme"}, "acme"},
		"foreign URI":       {"acme", []string{"spiffe://x/y"}, "acme"},
		"both":              {"someone", []string{"spiffe://x/y", "controld://tenant/acme"}, "acme"},
		"two":               {"acme", []string{"controld://tenant/acme", "controld://tenant/other"}, ""},
		"the same twice":    {"acme", []string{"controld://tenant/acme", "controld://tenant/acme"}, ""},
		"another meaning":   {"acme", []string{"controld://host/acme"}, ""},
		"a longer path":     {"acme", []string{"controld://tenant/acme/box"}, ""},
		"a query":           {"acme", []string{"controld://tenant/acme?x"}, ""},
		"an empty name":     {"acme", []string{"controld://tenant/"}, ""},
		"an escaped slash":  {"acme", []string{"controld://tenant/a%2Fb"}, ""},
		"nothing":           {"", nil, ""},
		"no possible name":  {"../etc", nil, ""},
		"a name with blank": {"a b", nil, ""},
	} {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: tc.cn}}
		for _, s := range tc.uris {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		got, err := sandboxhost.CertificateTenant(c)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
