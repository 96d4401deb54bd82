package main

import "github.com/controld/controld/integration/load/worker"

// tls is the group of large transfers over TLS. The bare pair has the same
// version and, as Go chooses on the same machine, the same cipher.
func (b *bench) tls() group {
	g := group{name: "tls", before: b.settle, trials: []trial{
		{"TLS: controld down", b.move(worker.ControldTLS, "down", false)},
		{"TLS: controld up", b.move(worker.ControldTLS, "up", false)},
		{"TLS: bare down", b.move(bareTLS, "down", false)},
		{"TLS: bare up", b.move(bareTLS, "up", false)},
		{"TLS: scp get", b.scp(false)},
		{"TLS: scp put", b.scp(true)},
	}}
	for _, dir := range []string{"down", "up"} {
		ours, loop := "TLS: controld "+dir, "TLS: bare "+dir
		copied := map[string]string{"down": "TLS: scp get", "up": "TLS: scp put"}[dir]
		g.rows = append(g.rows, b.rate("TLS "+dir+" vs a bare loop over crypto/tls", ours, loop, 0.90),
			b.rate("TLS "+dir+" vs scp aes128-gcm", ours, copied, 1.5),
			told(b.rate("limit: bare TLS "+dir+" vs scp aes128-gcm", loop, copied, 1.5)))
	}
	return g
}
