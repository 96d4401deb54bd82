package peer

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"os"
)

// ClientTLS is the configuration of a client that trusts the certificate in a
// file of PEM alone.
func ClientTLS(identity string) (*tls.Config, error) {
	text, err := os.ReadFile(identity)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in it", identity)
	}
	return &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}, nil
}

// serveBareTLS serves what serveBare does, to clients that speak TLS.
func serveBareTLS(l net.Listener, identity string) error {
	pair, err := tls.LoadX509KeyPair(identity, identity)
	if err != nil {
		return err
	}
	return serveBare(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13,
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true}))
}

// loopSize is the buffer of a loop over TLS: the best of 32 KiB to 1 MiB.
const loopSize = 256 << 10

// send sends the first bytes of a file, in the clear by sendfile.
func send(conn net.Conn, f *os.File, size int64) error {
	if _, ok := conn.(*tls.Conn); ok {
		return copyLoop(conn, f, size)
	}
	_, err := io.CopyN(conn, f, size)
	return err
}

// copyLoop moves size bytes by reading a buffer and writing it.
func copyLoop(w io.Writer, r io.Reader, size int64) error {
	buf := make([]byte, loopSize)
	for left := size; left > 0; {
		n, err := io.ReadFull(r, buf[:min(left, loopSize)])
		if err != nil {
			return err
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}
