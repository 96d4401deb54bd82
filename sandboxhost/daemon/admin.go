package daemon

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/controld/controld/dataport"
)

// serveAdmin serves health and metrics on ln, where there is one, and returns
// how to stop that.
func (d *Daemon) serveAdmin(ln net.Listener) (stop func()) {
	if ln == nil {
		return func() {}
	}
	srv := &http.Server{Handler: d.adminMux(), ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0), // strangers' mistakes are not the daemon's log
		ConnState: func(c net.Conn, s http.ConnState) {
			if s == http.StateActive {
				dataport.Trust(c)
			}
		}}
	d.serving.Go(func() { srv.Serve(ln) })
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
	}
}

func (d *Daemon) adminMux() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if d.draining.Load() {
			http.Error(w, "draining", http.StatusServiceUnavailable)
			return
		}
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"version": d.opts.Version, "protocol": 1, "go": runtime.Version()})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(d.metrics(), promhttp.HandlerOpts{}))
	if d.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// metrics returns a registry of the daemon's own: nothing is global.
func (d *Daemon) metrics() *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "controld_build_info", Help: "Always 1; the labels name the build.",
			ConstLabels: prometheus.Labels{"version": d.opts.Version, "goversion": runtime.Version()},
		}, func() float64 { return 1 }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "controld_transfers_inflight", Help: "Transfers that have not ended.",
		}, func() float64 { return float64(d.transfers.Live()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "controld_draining", Help: "1 while the daemon drains.",
		}, func() float64 {
			if d.draining.Load() {
				return 1
			}
			return 0
		}),
	)
	d.registerGate(reg)
	d.registerPools(reg)
	return reg
}
