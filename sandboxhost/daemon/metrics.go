package daemon

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/controld/controld/rpc/server/gate"
)

// registerGate adds what became of those who had not authenticated.
func (d *Daemon) registerGate(reg *prometheus.Registry) {
	count := func(name, help string, labels prometheus.Labels, value func() uint64) {
		reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help, ConstLabels: labels},
			func() float64 { return float64(value()) }))
	}
	level := func(name, help string, value func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	level("controld_unauthenticated_connections", "Connections that have not authenticated.",
		func() float64 { return float64(d.gate.Counts().Strangers) })
	level("controld_insecure_data_networks", "Networks that plain data endpoints serve in the clear.",
		func() float64 { return float64(len(d.cfg.InsecureDataFrom)) })
	const refused, help = "controld_connections_refused_total", "Connections that were closed before they authenticated."
	count(refused, help, prometheus.Labels{"reason": "peer"}, d.refused.Load)
	count(refused, help, prometheus.Labels{"reason": "crowded"}, func() uint64 { return d.gate.Counts().Crowded })
	for _, f := range []gate.Failure{gate.Hello, gate.Handshake, gate.Token} {
		count(refused, help, prometheus.Labels{"reason": f.String()}, func() uint64 { return d.gate.Counts().KeptOut[f] })
		count("controld_authentication_failures_total", "Failed authentications.",
			prometheus.Labels{"kind": f.String()}, func() uint64 { return d.gate.Counts().Failed[f] })
	}
	if d.audit != nil {
		count("controld_audit_lost_lines_total", "Lines that the audit log lacks.", nil, d.audit.lost.Load)
	}
	if _, ok := d.identity.notAfter(); ok {
		level("controld_tls_certificate_not_after_timestamp_seconds", "When the certificate that is shown expires.",
			func() float64 { at, _ := d.identity.notAfter(); return float64(at.Unix()) })
	}
}

// registerPools adds how many sandboxes are ready and nobody's yet.
func (d *Daemon) registerPools(reg *prometheus.Registry) {
	for tier := range d.host.Ready() {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "controld_pool_ready_sandboxes",
			Help: "Sandboxes that are ready and nobody's yet.", ConstLabels: prometheus.Labels{"tier": tier}},
			func() float64 { return float64(d.host.Ready()[tier]) }))
	}
}
