package integration

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/controld/controld/sandboxhost/daemon"
)

// authority signs certificates for one test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key = newKey(t)
	a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, a.key, nil)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(c *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	a.last++
	c.SerialNumber, c.NotBefore = big.NewInt(a.last), time.Now().Add(-time.Hour)
	if c.NotAfter.IsZero() {
		c.NotAfter = time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return leaf
}

// server returns a certificate of 127.0.0.1.
func (a *authority) server(name string) tls.Certificate {
	return a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
}

// client returns a client's certificate; uri may be empty.
func (a *authority) client(name, uri string) tls.Certificate {
	c := &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if uri != "" {
		u, err := url.Parse(uri)
		if err != nil {
			a.t.Fatal(err)
		}
		c.URIs = []*url.URL{u}
	}
	return a.issue(c)
}

func (a *authority) issue(c *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	leaf := a.sign(c, key, a.cert)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// writePEM writes a certificate and, where there is one, its key.
func writePEM(t *testing.T, path string, c tls.Certificate) (cert, key string) {
	t.Helper()
	cert, key = path+".pem", path+"-key.pem"
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
	if err := os.WriteFile(cert, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if c.PrivateKey == nil {
		return cert, ""
	}
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// trust is a daemon with TLS on every plane, and those who sign for it.
type trust struct {
	*wireDaemon
	ca  *authority
	dir string
}

// startTrust starts a daemon whose certificate ca signs, and which asks for
// certificates of ca when mutual.
func startTrust(t *testing.T, mutual bool, adjust func(*daemon.Config)) *trust {
	t.Helper()
	x := &trust{ca: newAuthority(t, "ca"), dir: t.TempDir()}
	cert, key := writePEM(t, filepath.Join(x.dir, "server"), x.ca.server("first"))
	ca, _ := writePEM(t, filepath.Join(x.dir, "ca"), tls.Certificate{Certificate: [][]byte{x.ca.cert.Raw}})
	x.wireDaemon = startWire(t, func(c *daemon.Config) {
		c.Control, c.Data, c.Admin = []string{"tls://127.0.0.1:0"}, []string{"tls://127.0.0.1:0"}, "tls://127.0.0.1:0"
		c.TLSCert, c.TLSKey = cert, key
		if mutual {
			c.TLSClientCA = ca
		}
		if adjust != nil {
			adjust(c)
		}
	})
	return x
}

// config is what a client needs; certs are its own.
func (x *trust) config(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: x.ca.pool(), ServerName: "127.0.0.1", Certificates: certs}
}

// shake dials and shakes hands. Of TLS 1.3 a client learns only with its first
// read whether its own certificate was taken.
func (x *trust) shake(url string, cfg *tls.Config) (*tls.Conn, error) {
	x.t.Helper()
	_, addr, _ := strings.Cut(url, "://")
	raw, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		x.t.Fatal(err)
	}
	conn := tls.Client(raw, cfg)
	x.t.Cleanup(func() { raw.Close() })
	conn.SetDeadline(time.Now().Add(patience))
	return conn, conn.Handshake()
}

// try shakes hands, says something and returns the first line of the answer.
func (x *trust) try(url string, cfg *tls.Config, say string) (string, error) {
	x.t.Helper()
	conn, err := x.shake(url, cfg)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, say); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return line, err
}

// control is a client of the control plane over TLS.
func (x *trust) control(certs ...tls.Certificate) *wireClient {
	x.t.Helper()
	conn, err := x.shake(x.ready.Control[0], x.config(certs...))
	if err != nil {
		x.t.Fatal(err)
	}
	return &wireClient{t: x.t, d: x.wireDaemon, conn: conn, in: bufio.NewReaderSize(conn, 1<<20), kept: map[string]wireReply{}}
}

// enter says hello as tenant acme.
func (x *trust) enter(certs ...tls.Certificate) *wireClient {
	x.t.Helper()
	c := x.control(certs...)
	c.ok("hello", obj{"protocol": 1, "token": wireSecret})
	return c
}

// reload has the daemon read its files anew and waits until it has.
func (x *trust) reload() {
	x.t.Helper()
	before := strings.Count(x.log.String(), "reloaded")
	x.again <- struct{}{}
	await(x.t, "the reload", func() bool { return strings.Count(x.log.String(), "reloaded") > before })
}

const pingLine = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"

const pong = `{"jsonrpc":"2.0","id":1,"result":{}}` + "\n"
