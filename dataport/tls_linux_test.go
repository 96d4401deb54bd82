package dataport_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/sandbox"
)

// selfSigned returns a certificate for 127.0.0.1 and the roots that trust it.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, roots
}

// tlsPair returns two ends of a TLS connection, the accepted one second, after
// their handshake.
func tlsPair(t *testing.T) (near, far *tls.Conn) {
	t.Helper()
	cert, roots := selfSigned(t)
	ln, err := dataport.Listen(dataport.Endpoint{Scheme: dataport.SchemeTLS, Host: "127.0.0.1"}, dataport.ListenOptions{
		TLS: func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{cert}} }})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	shaken := make(chan error, 1)
	go func() {
		conn, err := ln.Accept()
		if err == nil {
			far = conn.(*tls.Conn)
			err = far.Handshake()
		}
		shaken <- err
	}()
	e := dataport.Endpoint{Scheme: dataport.SchemeTLS, Host: "127.0.0.1", Port: uint32(ln.Addr().(*net.TCPAddr).Port)}
	conn, err := dataport.Dialer{TLS: &tls.Config{RootCAs: roots}}.Dial(t.Context(), e)
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	near = conn.(*tls.Conn)
	dataport.Trust(far)
	t.Cleanup(func() { dataport.Bare(near).Close(); dataport.Bare(far).Close() })
	return near, far
}

// TestTLSStalls: a peer that takes nothing, or sends nothing, ends the pump
// after the stall time as it does without TLS.
func TestTLSStalls(t *testing.T) {
	const stall = 200 * time.Millisecond
	pump := dataport.NewPump(dataport.PumpOptions{Stall: stall})
	_, far := tlsPair(t)
	start := time.Now()
	_, err := pump.Receive("", far, io.Discard, false, func() (sandbox.Optional[int64], bool) { return sandbox.Optional[int64]{}, false })
	if sandbox.KindOf(err) != sandbox.KindStalled || time.Since(start) < stall {
		t.Errorf("receive: %v after %v", err, time.Since(start))
	}
	start = time.Now()
	_, err = pump.Send("", far, zeros{}, sandbox.Optional[int64]{}, never)
	if sandbox.KindOf(err) != sandbox.KindStalled || time.Since(start) < stall {
		t.Errorf("send: %v after %v", err, time.Since(start))
	}
}

// countingZeros counts how often it was read.
type countingZeros struct{ reads atomic.Int64 }

func (z *countingZeros) Read(p []byte) (int, error) { z.reads.Add(1); return len(p), nil }

// TestTLSSendWaitsForASlowPeer: a write of TLS that ran into a deadline would
// be its end; a peer that pauses for longer than the pump looks away is served.
func TestTLSSendWaitsForASlowPeer(t *testing.T) {
	const size = 24 << 20 // more than sockets hold
	near, far := tlsPair(t)
	var src countingZeros
	var asked atomic.Int64
	late := make(chan struct{}, 1)
	// It is asked once a write, of the welcome and of each read, and beyond
	// that only when a write ran into its deadline.
	ended := func() bool {
		if asked.Add(1) > src.reads.Load()+1 {
			select {
			case late <- struct{}{}:
			default:
			}
		}
		return false
	}
	done := make(chan error, 1)
	go func() {
		n, err := dataport.NewPump(dataport.PumpOptions{Stall: 8 * time.Second}).Send("", far, &src, sandbox.Some(int64(size)), ended)
		if err == nil && n != size {
			err = fmt.Errorf("sent %d", n)
		}
		done <- err
	}()
	welcomed(t, near)
	select {
	case <-late:
	case err := <-done:
		t.Fatalf("the send ended: %v", err)
	}
	if n, err := io.CopyN(io.Discard, near, size); n != size || err != nil {
		t.Fatalf("the peer got %d of %d, %v", n, size, err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// waiting waits until so many bytes lie unread in a socket.
func waiting(t *testing.T, conn net.Conn, bytes int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for have, end := 0, time.Now().Add(30*time.Second); have < bytes; time.Sleep(time.Millisecond) {
		raw.Control(func(fd uintptr) { have, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
		if time.Now().After(end) {
			t.Fatalf("%d bytes came, want %d", have, bytes)
		}
	}
}

// TestTLSReceiveSeesOneByteTooMany, and takes no goodbye for one, whether it
// came with the rest or lies in the socket.
func TestTLSReceiveSeesOneByteTooMany(t *testing.T) {
	const overhead = 22 // of a record, see RFC 8446
	for name, tc := range map[string]struct {
		behind func(*tls.Conn)
		bytes  int
		more   bool
	}{
		"a byte":  {func(c *tls.Conn) { io.WriteString(c, "d") }, overhead + 1, true},
		"goodbye": {func(c *tls.Conn) { c.CloseWrite() }, overhead + 2, false},
		"silence": {func(*tls.Conn) {}, 0, false},
	} {
		for _, together := range []bool{true, false} {
			near, far := tlsPair(t)
			io.WriteString(near, "abc")
			if together {
				tc.behind(near)
				waiting(t, dataport.Bare(far), overhead+3+tc.bytes)
			}
			asked := 0
			got, err := dataport.NewPump(dataport.PumpOptions{Stall: time.Minute}).Receive("", far, io.Discard, false, func() (sandbox.Optional[int64], bool) {
				if asked++; asked == 2 && !together { // the three were read
					tc.behind(near)
					waiting(t, dataport.Bare(far), tc.bytes)
				}
				return sandbox.Optional[int64]{Value: 3, Known: asked > 1}, false
			})
			if err != nil || got.Bytes != 3 || got.More != tc.more {
				t.Errorf("%s, together %v: %+v, %v", name, together, got, err)
			}
		}
	}
}
