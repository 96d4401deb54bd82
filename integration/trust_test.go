package integration

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// TestTrustTLS: P1.8. TLS 1.3 on all three, nothing older, and nothing plain.
func TestTrustTLS(t *testing.T) {
	x := startTrust(t, false, nil)
	if line, err := x.try(x.ready.Control[0], x.config(), pingLine); line != pong {
		t.Fatalf("control: %q, %v", line, err)
	}
	if line, err := x.try(x.ready.Data[0], x.config(), "CTRLD1 "+strings.Repeat("A", 43)+"\n"); line != "ERR token_invalid\n" {
		t.Fatalf("data: %q, %v", line, err)
	}
	if line, err := x.try(x.ready.Admin, x.config(), "GET /healthz HTTP/1.0\r\n\r\n"); line != "HTTP/1.0 200 OK\r\n" {
		t.Fatalf("admin: %q, %v", line, err)
	}
	for name, url := range map[string]string{"control": x.ready.Control[0], "data": x.ready.Data[0], "admin": x.ready.Admin} {
		if !strings.HasPrefix(url, "tls://127.0.0.1:") {
			t.Errorf("%s is told as %s", name, url)
		}
		old := x.config()
		old.MaxVersion = tls.VersionTLS12
		if _, err := x.shake(url, old); err == nil {
			t.Errorf("%s speaks TLS 1.2", name)
		}
		conn := x.connect("tcp://" + strings.TrimPrefix(url, "tls://"))
		io.WriteString(conn, pingLine)
		if b, err := io.ReadAll(conn); strings.Contains(string(b), "result") || os.IsTimeout(err) {
			t.Errorf("%s answers in the clear: %q, %v", name, b, err)
		}
	}
	c := x.enter()
	k := c.mintWrite("f")
	conn, err := x.shake(x.ready.Data[0], x.config())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "CTRLD1 "+k.token+"\nover tls")
	ok := make([]byte, 3)
	if _, err := io.ReadFull(conn, ok); err != nil || string(ok) != "OK\n" {
		t.Fatalf("%q, %v", ok, err)
	}
	if r := k.commit(8); r.num("bytes") != 8 || x.get("f") != "over tls" {
		t.Fatalf("got %s", r.line)
	}
	r := c.mintRead("f")
	if conn, err = x.shake(x.ready.Data[0], x.config()); err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "CTRLD1 "+r.token+"\n")
	if b, err := io.ReadAll(conn); string(b) != "OK\nover tls" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
}

// TestTrustSilentHandshake: P1.8, P3.5. A peer that does not shake hands keeps
// nobody waiting and is closed in the time of a hello.
func TestTrustSilentHandshake(t *testing.T) {
	x := startTrust(t, false, nil)
	var silent []net.Conn
	began := time.Now()
	for range 50 {
		for _, url := range []string{x.ready.Control[0], x.ready.Data[0]} {
			conn := x.connect("tcp://" + strings.TrimPrefix(url, "tls://"))
			io.WriteString(conn, "\x16\x03\x01") // a record begins
			silent = append(silent, conn)
		}
	}
	if line, err := x.try(x.ready.Control[0], x.config(), pingLine); line != pong {
		t.Fatalf("%q, %v", line, err)
	}
	if time.Since(began) > 5*time.Second {
		t.Skip("too slow here to tell who waited for whom")
	}
	for _, conn := range silent {
		if _, err := io.Copy(io.Discard, conn); os.IsTimeout(err) {
			t.Fatal("a silent peer is not closed")
		}
		if early := time.Since(began) < 4*time.Second; early {
			t.Fatal("closed before its time")
		}
	}
}

// TestTrustLongHandshake: P13.9. A stranger may not fill memory with what it
// calls a certificate.
func TestTrustLongHandshake(t *testing.T) {
	x := startTrust(t, true, nil)
	huge := x.ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "acme"}, DNSNames: []string{strings.Repeat("a.", 50_000) + "a"}})
	if line, err := x.try(x.ready.Control[0], x.config(huge), pingLine); line != "" || err == nil {
		t.Errorf("a certificate of 100 kB is taken: %q", line)
	}
	mine := x.ca.client("acme", "")
	c := x.enter(mine)
	c.writeFile("f", strings.Repeat("x", 1<<20)) // no bound any more
	conn, err := x.shake(x.ready.Admin, x.config(mine))
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for range 20 { // nor there
		fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 8000))
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
	}
}

// TestTrustMutual: P1.9. Whoever has no certificate that the CA signed is let
// in nowhere.
func TestTrustMutual(t *testing.T) {
	x := startTrust(t, true, nil)
	mine, other := x.ca.client("acme", ""), newAuthority(t, "other")
	expired := x.ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "acme"}, NotAfter: time.Now().Add(-time.Minute)})
	say := map[string]string{x.ready.Control[0]: pingLine, x.ready.Data[0]: "CTRLD1 " + strings.Repeat("A", 43) + "\n", x.ready.Admin: "GET /healthz HTTP/1.0\r\n\r\n"}
	for url, text := range say {
		if line, err := x.try(url, x.config(mine), text); line == "" {
			t.Errorf("%s with a certificate: %v", url, err)
		}
		for name, certs := range map[string][]tls.Certificate{
			"none": nil, "of another authority": {other.client("acme", "")}, "expired": {expired}, "for servers": {x.ca.issue(
				&x509.Certificate{Subject: pkix.Name{CommonName: "acme"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})},
		} {
			if line, err := x.try(url, x.config(certs...), text); line != "" || err == nil {
				t.Errorf("%s with a certificate %s: %q, %v", url, name, line, err)
			}
		}
	}
}

// TestTrustTenant: P1.10, P7.15 and P11.11.
func TestTrustTenant(t *testing.T) {
	x := startTrust(t, true, nil)
	for name, tc := range map[string]struct {
		cert tls.Certificate
		good bool
	}{
		"common name":            {x.ca.client("acme", ""), true},
		"URI":                    {x.ca.client("somebody", "controld://tenant/acme"), true},
		"URI of another":         {x.ca.client("acme", "controld://tenant/other"), false},
		"common name of another": {x.ca.client("other", ""), false},
		"URI of something else":  {x.ca.client("acme", "https://acme/"), true},
		"URI of no tenant":       {x.ca.client("acme", "controld://sandbox/acme"), false},
		"no name":                {x.ca.client("a b", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := x.control(tc.cert).call("hello", obj{"protocol": 1, "token": wireSecret})
			if !tc.good {
				r.want(t, -32001, "unauthenticated")
			} else if r.Error != nil {
				t.Fatalf("got %s", r.line)
			}
		})
	}
	acme, other := x.ca.client("acme", ""), x.ca.client("other", "")
	k := x.enter(acme).mintWrite("f")
	for name, cert := range map[string]tls.Certificate{"other": other, "no tenant's": x.ca.client("a b", "")} {
		if line, err := x.try(x.ready.Data[0], x.config(cert), "CTRLD1 "+k.token+"\n"); line != "ERR token_invalid\n" {
			t.Fatalf("certificate of %s: %q, %v", name, line, err)
		}
	}
	if line, err := x.try(x.ready.Data[0], x.config(acme), "CTRLD1 "+k.token+"\n"); line != "OK\n" {
		t.Fatalf("own certificate: %q, %v", line, err)
	}
}

// TestTrustCertificateLogin: P7.16.
func TestTrustCertificateLogin(t *testing.T) {
	x := startTrust(t, true, func(c *daemon.Config) { c.TLSClientLogin = true })
	acme, other := x.ca.client("acme", ""), x.ca.client("other", "")
	for name, params := range map[string]obj{"empty": {"protocol": 1, "token": ""}, "absent": {"protocol": 1}, "tenant": {"protocol": 1, "tenant": "acme"},
		"a token": {"protocol": 1, "token": wireSecret}, "sandbox": {"protocol": 1, "sandbox": "any"}} {
		r := x.control(acme).call("hello", params)
		if r.Error != nil || r.str("tenant") != "acme" {
			t.Errorf("%s: %s", name, r.line)
		}
	}
	x.control(acme).fails("hello", obj{"protocol": 1, "tenant": "other"}, -32001, "unauthenticated")
	x.control(acme).fails("hello", obj{"protocol": 1, "token": "wrong"}, -32001, "unauthenticated")
	x.control(other).fails("hello", obj{"protocol": 1, "token": wireSecret}, -32001, "unauthenticated")
}

// TestTrustNoCertificateLogin: P7.16. By default a certificate is not enough.
func TestTrustNoCertificateLogin(t *testing.T) {
	strict := startTrust(t, true, nil)
	strict.control(strict.ca.client("acme", "")).fails("hello", obj{"protocol": 1, "token": ""}, -32001, "unauthenticated")
	r := strict.control(strict.ca.client("acme", "")).fails("hello", obj{"protocol": 1}, -32602, "invalid_params")
	if !strings.Contains(r.Error.Message, "token") {
		t.Errorf("got %s", r.line)
	}
}

// TestTrustReload: P1.11. What runs goes on; the next handshake is by the new
// files; broken ones change nothing.
func TestTrustReload(t *testing.T) {
	x := startTrust(t, true, nil)
	mine := x.ca.client("acme", "")
	c := x.enter(mine)
	k := c.mintWrite("f")
	conn, err := x.shake(x.ready.Data[0], x.config(mine))
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(conn, "CTRLD1 "+k.token+"\nbefore, ")
	shown := func(cfg *tls.Config) string {
		for _, url := range []string{x.ready.Data[0], x.ready.Admin, x.ready.Control[0]} {
			conn, err := x.shake(url, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if name := conn.ConnectionState().PeerCertificates[0].Subject.CommonName; url == x.ready.Control[0] {
				return name
			}
		}
		return ""
	}
	if name := shown(x.config(mine)); name != "first" {
		t.Fatalf("shown: %s", name)
	}
	if err := os.WriteFile(x.cfg.TLSCert, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	x.reload()
	if name := shown(x.config(mine)); name != "first" || strings.Count(x.log.String(), "certificates kept as they were") != 1 {
		t.Fatalf("shown behind broken files: %s\n%s", name, x.log)
	}
	next := newAuthority(t, "next")
	writePEM(t, filepath.Join(x.dir, "server"), x.ca.server("second"))
	writePEM(t, filepath.Join(x.dir, "ca"), tls.Certificate{Certificate: [][]byte{next.cert.Raw}})
	x.reload()
	if line, err := x.try(x.ready.Control[0], x.config(mine), pingLine); line != "" || err == nil {
		t.Errorf("a certificate of the old authority: %q, %v", line, err)
	}
	if name := shown(x.config(next.client("acme", ""))); name != "second" {
		t.Errorf("shown: %s", name)
	}
	if line, err := x.try(x.ready.Control[0], x.config(next.client("acme", "")), pingLine); line != pong {
		t.Errorf("a certificate of the new authority: %q, %v", line, err)
	}
	c.ok("ping", nil)
	io.WriteString(conn, "after")
	if r := k.commit(13); r.num("bytes") != 13 || x.get("f") != "before, after" {
		t.Fatalf("got %s", r.line)
	}
}

// TestTrustDenyList: P1.12.
func TestTrustDenyList(t *testing.T) {
	deny := filepath.Join(t.TempDir(), "deny")
	if err := os.WriteFile(deny, []byte("# nobody\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	x := startTrust(t, true, func(c *daemon.Config) { c.TLSClientDeny = deny })
	lost, kept := x.ca.client("acme", ""), x.ca.client("acme", "")
	if line, err := x.try(x.ready.Control[0], x.config(lost), pingLine); line != pong {
		t.Fatalf("%q, %v", line, err)
	}
	if err := os.WriteFile(deny, fmt.Appendf(nil, "%x\n", sha256.Sum256(lost.Certificate[0])), 0o600); err != nil {
		t.Fatal(err)
	}
	x.reload()
	if line, err := x.try(x.ready.Control[0], x.config(lost), pingLine); line != "" || err == nil {
		t.Errorf("denied: %q, %v", line, err)
	}
	if line, err := x.try(x.ready.Control[0], x.config(kept), pingLine); line != pong {
		t.Errorf("not denied: %q, %v", line, err)
	}
}
