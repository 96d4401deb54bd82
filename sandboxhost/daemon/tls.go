package daemon

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// identity is what the tls listeners show and ask for. It is replaced as a
// whole: a handshake sees the old one or the new one.
type identity struct {
	current atomic.Pointer[tls.Config]
}

// load reads the files of a configuration; on an error what was there stays.
func (i *identity) load(c Config) error {
	if c.TLSCert == "" {
		return nil
	}
	loaded, err := loadTLS(c)
	if err == nil {
		i.current.Store(loaded)
	}
	return err
}

// config is what the next handshake uses.
func (i *identity) config() *tls.Config { return i.current.Load() }

// notAfter is when the certificate that is shown expires.
func (i *identity) notAfter() (time.Time, bool) {
	cfg := i.current.Load()
	if cfg == nil {
		return time.Time{}, false
	}
	return cfg.Certificates[0].Leaf.NotAfter, true
}

// loadTLS makes a configuration of files. There are no session tickets: a
// client whose certificate is not accepted any more could go on with one.
func loadTLS(c Config) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.TLSCert, c.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("tls-cert, tls-key: %w", err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true,
	}
	if c.TLSClientCA == "" {
		return cfg, nil
	}
	if cfg.ClientCAs, err = loadRoots(c.TLSClientCA); err != nil {
		return nil, fmt.Errorf("tls-client-ca: %w", err)
	}
	cfg.ClientAuth = tls.RequireAndVerifyClientCert
	if c.TLSClientDeny == "" {
		return cfg, nil
	}
	denied, err := loadFingerprints(c.TLSClientDeny)
	if err != nil {
		return nil, fmt.Errorf("tls-client-deny: %w", err)
	}
	cfg.VerifyPeerCertificate = func(raw [][]byte, _ [][]*x509.Certificate) error {
		if denied[sha256.Sum256(raw[0])] {
			return errors.New("the certificate is on the deny list")
		}
		return nil
	}
	return cfg, nil
}

func loadRoots(path string) (*x509.CertPool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: no certificate in it", path)
	}
	return pool, nil
}

// loadFingerprints reads SHA-256 sums of certificates, one a line in hex, with
// colons or without; empty lines and lines that begin with '#' are skipped.
func loadFingerprints(path string) (map[[sha256.Size]byte]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	denied := make(map[[sha256.Size]byte]bool)
	n := 0
	for line := range bytes.Lines(text) {
		n++
		s := strings.TrimSpace(string(line))
		if s == "" || s[0] == '#' {
			continue
		}
		raw, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
		if err != nil || len(raw) != sha256.Size {
			return nil, fmt.Errorf("%s:%d: want the 64 hex digits of a SHA-256", path, n)
		}
		denied[[sha256.Size]byte(raw)] = true
	}
	return denied, nil
}
