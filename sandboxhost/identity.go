package sandboxhost

import (
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"strings"

	"github.com/controld/controld/rpc"
	"github.com/controld/controld/rpc/server"
	"github.com/controld/controld/sandbox"
)

// tenantURI begins the URI of a certificate that names a tenant.
const tenantURI = "controld://tenant/"

// CertificateTenant returns the tenant that a client certificate names: in a
// URI controld://tenant/NAME among its alternative names, else by its common
// name. Two such URIs, or one of that scheme that says anything else, are an
// error: a certificate is of one tenant.
func CertificateTenant(c *x509.Certificate) (string, error) {
	name, found := c.Subject.CommonName, false
	for _, uri := range c.URIs {
		if uri.Scheme != "controld" {
			continue
		}
		rest, ok := strings.CutPrefix(uri.String(), tenantURI)
		if !ok || found {
			return "", fmt.Errorf("certificate %q: want one URI %sNAME, got %v", c.Subject.CommonName, tenantURI, c.URIs)
		}
		name, found = rest, true
	}
	if !tenantName.MatchString(name) {
		return "", fmt.Errorf("certificate: %q is no name of a tenant", name)
	}
	return name, nil
}

// authenticate returns what a hello opens and who said it. A certificate binds
// the token to its tenant, or stands for it where the configuration says so.
func (h *Host) authenticate(tokens *Tokens, hello rpc.HelloParams, from server.Visitor) (Grant, string, error) {
	if from.Certificate == nil {
		grant, err := tokens.Authenticate(hello)
		return grant, tokenName(hello.Token), err
	}
	own, err := CertificateTenant(from.Certificate)
	if err != nil {
		return Grant{}, "", notOpened()
	}
	if hello.Token == "" && h.cfg.CertificateLogin {
		if hello.Tenant != "" && hello.Tenant != own {
			return Grant{}, "", notOpened()
		}
		return Grant{Tenant: own, Sandbox: AnySandbox}, certificateName(from.Certificate), nil
	}
	grant, err := tokens.Authenticate(hello)
	if err != nil || grant.Tenant != own {
		return Grant{}, "", notOpened()
	}
	return grant, tokenName(hello.Token), nil
}

func notOpened() error {
	return &sandbox.Error{Kind: sandbox.KindUnauthenticated, Op: rpc.MethodHello, Message: "the token does not open this"}
}

// tokenName names a token without telling it: by the beginning of its hash,
// which the token file holds whole.
func tokenName(token string) string {
	sum := sha256.Sum256([]byte(token))
	return fmt.Sprintf("token %x", sum[:4])
}

func certificateName(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return fmt.Sprintf("certificate %x %s", sum[:4], c.Subject.CommonName)
}
