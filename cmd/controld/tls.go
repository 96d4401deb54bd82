package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/spf13/pflag"
)

// tlsFlags say whom a client trusts and what it shows, on tls URLs.
type tlsFlags struct {
	ca, cert, key, serverName string
}

func (t *tlsFlags) declare(f *pflag.FlagSet) {
	f.StringVar(&t.ca, "tls-ca", "", "PEM file of who signs the server's certificate, instead of the system's (CONTROLD_TLS_CA)")
	f.StringVar(&t.cert, "tls-cert", "", "PEM file of the client's certificate (CONTROLD_TLS_CERT)")
	f.StringVar(&t.key, "tls-key", "", "PEM file of its key (CONTROLD_TLS_KEY)")
	f.StringVar(&t.serverName, "tls-server-name", "", "name in the server's certificate, where it is not the host of the control URL (CONTROLD_TLS_SERVER_NAME)")
}

// config returns nil where nothing was said.
func (t tlsFlags) config() (*tls.Config, error) {
	ca := firstOf(t.ca, os.Getenv("CONTROLD_TLS_CA"))
	cert := firstOf(t.cert, os.Getenv("CONTROLD_TLS_CERT"))
	key := firstOf(t.key, os.Getenv("CONTROLD_TLS_KEY"))
	name := firstOf(t.serverName, os.Getenv("CONTROLD_TLS_SERVER_NAME"))
	if ca == "" && cert == "" && key == "" && name == "" {
		return nil, nil
	}
	if (cert == "") != (key == "") {
		return nil, usagef("--tls-cert and --tls-key: one does not go without the other")
	}
	cfg := &tls.Config{ServerName: name}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, usagef("--tls-ca: %s has no certificate in it", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
