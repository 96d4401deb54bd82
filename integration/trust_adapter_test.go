package integration

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/sandboxhost/daemon"
)

// adapter connects an adapter over TLS.
func (x *trust) adapter(o adapter.Options) *adapter.Sandbox {
	x.t.Helper()
	if o.Control == "" {
		o.Control = x.ready.Control[0]
	}
	if o.Token == "" {
		o.Token = wireSecret
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{RootCAs: x.ca.pool()}
	}
	sb, err := adapter.New(o)
	if err != nil {
		x.t.Fatal(err)
	}
	x.t.Cleanup(func() { sb.Close() })
	return sb
}

// moves wants a stream each way.
func moves(t *testing.T, sb *adapter.Sandbox) {
	t.Helper()
	content := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if _, err := sb.WriteFileStream(t.Context(), "f", bytes.NewReader(content), sandbox.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := sb.ReadFileStream(t.Context(), "f", sandbox.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, err := io.ReadAll(r); err != nil || !bytes.Equal(b, content) {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
}

// TestTrustAdapter, plainly and over one connection, with and without a
// certificate of its own.
func TestTrustAdapter(t *testing.T) {
	x := startTrust(t, false, nil)
	moves(t, x.adapter(adapter.Options{}))
	moves(t, x.adapter(adapter.Options{Mux: true}))
	m := startTrust(t, true, nil)
	mine := &tls.Config{RootCAs: m.ca.pool(), Certificates: []tls.Certificate{m.ca.client("acme", "")}}
	moves(t, m.adapter(adapter.Options{TLS: mine}))
	moves(t, m.adapter(adapter.Options{TLS: mine, Mux: true}))
	if _, err := m.adapter(adapter.Options{}).Info(t.Context()); err == nil {
		t.Error("let in without a certificate")
	}
}

// TestTrustNameOfControl: P1.13. The data plane must prove the name that the
// control plane proved, wherever it is.
func TestTrustNameOfControl(t *testing.T) {
	x := startTrust(t, false, nil)
	named, key := writePEM(t, filepath.Join(x.dir, "named"), x.ca.issue(&x509.Certificate{DNSNames: []string{"localhost"}}))
	d := startWire(t, func(c *daemon.Config) {
		c.Control, c.Data = []string{"tls://localhost:0"}, []string{"tls://127.0.0.1:0"}
		c.TLSCert, c.TLSKey = named, key
	})
	moves(t, x.adapter(adapter.Options{Control: d.ready.Control[0]}))
	// Another server that the same authority vouches for, by its own name.
	other := startWire(t, func(c *daemon.Config) {
		c.Control, c.Data = []string{"tls://localhost:0"}, []string{"tls://127.0.0.1:0"}
		c.TLSCert, c.TLSKey = named, key
		c.AdvertiseData = x.ready.Data
	})
	_, err := x.adapter(adapter.Options{Control: other.ready.Control[0]}).OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
	if e := wantKind(t, err, sandbox.KindUnavailable); !strings.Contains(e.Message, "localhost") {
		t.Errorf("refused for another reason: %v", e)
	}
}

// TestTrustNothingInTheClear: P1.14. An adapter that was told tls:// says
// nothing in the clear, and moves no bytes there unless the daemon was told to.
func TestTrustNothingInTheClear(t *testing.T) {
	plain := func(c *daemon.Config) { c.Data = []string{"tcp://127.0.0.1:0"} }
	x := startTrust(t, false, plain)
	sb := x.adapter(adapter.Options{})
	_, err := sb.OpenWrite(t.Context(), "f", sandbox.WriteOptions{})
	if e := wantKind(t, err, sandbox.KindUnavailable); e.Outcome != sandbox.OutcomeNone || !strings.Contains(e.Message, "no data endpoint that goes with tls://") {
		t.Errorf("%+v", e)
	}
	if _, err := sb.WriteFile(t.Context(), "f", []byte("small"), sandbox.WriteOptions{}); err != nil {
		t.Error(err)
	}
	moves(t, x.adapter(adapter.Options{Data: x.ready.Data})) // a choice of its own
	moves(t, x.adapter(adapter.Options{Mux: true}))
	told := startTrust(t, false, func(c *daemon.Config) { plain(c); c.InsecureDataFrom = []string{"127.0.0.0/8"} })
	moves(t, told.adapter(adapter.Options{}))

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	heard := make(chan []byte, 1)
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			close(heard)
			return
		}
		io.WriteString(conn, `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n")
		b, _ := io.ReadAll(conn)
		conn.Close()
		heard <- b
	}()
	_, err = x.adapter(adapter.Options{Control: "tls://" + ln.Addr().String()}).Info(t.Context())
	wantKind(t, err, sandbox.KindUnavailable)
	if b := <-heard; bytes.Contains(b, []byte(wireSecret)) || len(b) == 0 || b[0] != 0x16 {
		t.Errorf("said %q to a server without TLS", b)
	}
}

// TestTrustGibibyteOverAReload: P1.11. A transfer that is under way ends right.
func TestTrustGibibyteOverAReload(t *testing.T) {
	const size = 1 << 30
	x := startTrust(t, true, nil)
	sb := x.adapter(adapter.Options{TLS: &tls.Config{RootCAs: x.ca.pool(), Certificates: []tls.Certificate{x.ca.client("acme", "")}}})
	src, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if err := src.Truncate(size); err != nil {
		t.Fatal(err)
	}
	half, on := make(chan struct{}), make(chan struct{})
	up := io.MultiReader(io.LimitReader(src, size/2), &pause{half, on}, src)
	done := make(chan error, 1)
	go func() {
		_, err := sb.WriteFileStream(t.Context(), "big", up, sandbox.WriteOptions{Size: sandbox.Some(int64(size))})
		done <- err
	}()
	<-half
	next := newAuthority(t, "next")
	writePEM(t, filepath.Join(x.dir, "server"), x.ca.issue(&x509.Certificate{Subject: pkix.Name{CommonName: "second"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}))
	writePEM(t, filepath.Join(x.dir, "ca"), tls.Certificate{Certificate: [][]byte{next.cert.Raw}})
	x.reload()
	close(on)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(x.path("big")); err != nil || info.Size() != size {
		t.Fatalf("%v, %v", info, err)
	}
	os.Remove(x.path("big"))
}

// pause is a reader of nothing that tells when it was reached and waits.
type pause struct{ reached, on chan struct{} }

func (p *pause) Read([]byte) (int, error) {
	close(p.reached)
	<-p.on
	return 0, io.EOF
}
