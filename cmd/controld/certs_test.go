package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// certs writes NAME.pem and NAME-key.pem for each of its arguments, all signed
// by ca.pem, which it writes too. server is good for 127.0.0.1 and the name
// control.test, any other for a client of that name.
func certs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: certs NAME...")
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	writeCert(ts, "ca", ca, ca, caKey, caKey)
	for i, name := range args {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		ts.Check(err)
		c := &x509.Certificate{SerialNumber: big.NewInt(int64(i + 2)), Subject: pkix.Name{CommonName: name}, NotBefore: ca.NotBefore, NotAfter: ca.NotAfter}
		if name == "server" {
			c.DNSNames, c.IPAddresses = []string{"control.test"}, []net.IP{net.IPv4(127, 0, 0, 1)}
		} else {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}
		writeCert(ts, name, c, ca, key, caKey)
	}
}

func writeCert(ts *testscript.TestScript, name string, c, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) {
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(name+"-key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
