package goals

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/faultproxy"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

// The bytes that a data connection begins with, before those of the file.
const (
	preamble = 51 // up: magic, token, newline
	welcome  = 3  // down: OK, newline
)

// wire is a client whose planes go through proxies: what is planned happens to
// the first connection of each.
type wire struct {
	*adapter.Sandbox
	control, data *faultproxy.Proxy
	daemon        atomic.Pointer[ground.Daemon] // the one that the proxies dial
	muxers        []*faultproxy.Muxer
	dir           string // of the muxers
}

// newWire connects a client to a daemon; o may say more.
func newWire(d *ground.Daemon, control, data faultproxy.Plan, o adapter.Options) (*wire, error) {
	w, err := proxied(d, control, data)
	if err != nil {
		return nil, err
	}
	return w, w.connect("tcp://"+w.control.Addr(), "tcp://"+w.data.Addr(), o)
}

// newMuxedWire is newWire through the vsock device of a microVM monitor: the
// faults are those between it and the daemon in the guest.
func newMuxedWire(d *ground.Daemon, control, data faultproxy.Plan, o adapter.Options) (*wire, error) {
	w, err := proxied(d, control, data)
	if err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "mux-"); err != nil {
		w.close()
		return nil, err
	}
	for _, p := range []*faultproxy.Proxy{w.control, w.data} {
		m, err := faultproxy.ListenMuxer(filepath.Join(w.dir, strconv.Itoa(len(w.muxers))), faultproxy.To("tcp", p.Addr()))
		if err != nil {
			w.close()
			return nil, err
		}
		w.muxers = append(w.muxers, m)
	}
	return w, w.connect(w.muxers[0].URL(), w.muxers[1].URL(), o)
}

// proxied makes a wire without its client.
func proxied(d *ground.Daemon, control, data faultproxy.Plan) (*wire, error) {
	w := &wire{}
	w.daemon.Store(d)
	var err error
	if w.control, err = faultproxy.Listen(w.to((*ground.Daemon).Control), first(control)); err != nil {
		return nil, err
	}
	if w.data, err = faultproxy.Listen(w.to((*ground.Daemon).Data), first(data)); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// first plans for the first connection alone.
func first(plan faultproxy.Plan) func(int) faultproxy.Plan {
	return func(n int) faultproxy.Plan {
		if n > 0 {
			return faultproxy.Plan{}
		}
		return plan
	}
}

// to dials one of the planes of the daemon that is there now.
func (w *wire) to(plane func(*ground.Daemon) string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return faultproxy.To("tcp", plane(w.daemon.Load()))(ctx)
	}
}

// connect makes the client; it closes the wire where that fails.
func (w *wire) connect(control, data string, o adapter.Options) (err error) {
	o.Control, o.Data = control, []string{data}
	o.RetryFor = 2 * time.Second
	o.Conn = rpc.ConnOptions{PingInterval: time.Second, PingTimeout: time.Second, CancelTimeout: 300 * time.Millisecond}
	if w.Sandbox, err = w.daemon.Load().Client(o); err != nil {
		w.close()
	}
	return err
}

// struck tells whether what was planned has happened.
func (w *wire) struck() bool { return len(w.control.Struck())+len(w.data.Struck()) > 0 }

func (w *wire) close() {
	if w.Sandbox != nil {
		w.Sandbox.Close()
	}
	for _, p := range []*faultproxy.Proxy{w.control, w.data} {
		if p != nil {
			p.Close()
		}
	}
	for _, m := range w.muxers {
		m.Close()
	}
	if w.dir != "" {
		os.RemoveAll(w.dir)
	}
}

// silent tells whether a fault lets a call wait for ever.
func silent(k faultproxy.Kind) bool { return k == faultproxy.Stall || k == faultproxy.BlackHole }

// aCut chooses how a connection is cut.
func aCut(r *rand.Rand) faultproxy.Kind {
	switch n := r.IntN(100); {
	case n < 45:
		return faultproxy.FIN
	case n < 75:
		return faultproxy.RST
	case n < 90:
		return faultproxy.Stall
	}
	return faultproxy.BlackHole
}

// aSize chooses the size of a file, small ones as often as large ones.
func aSize(r *rand.Rand, most float64) int64 { return int64(math.Exp(r.Float64() * math.Log(most))) }

// content yields size bytes that are like no others.
func content(r *rand.Rand, size int64) []byte {
	b := make([]byte, size)
	var seed [32]byte
	for i := range seed {
		seed[i] = byte(r.Uint32())
	}
	rand.NewChaCha8(seed).Read(b)
	return b
}

// open tells whether an error leaves open what became of its call: those that
// do say so.
func open(err error) bool {
	var e *sandbox.Error
	if !errors.As(err, &e) {
		return true
	}
	switch e.Kind {
	case sandbox.KindConnectionLost, sandbox.KindOutcomeUnknown:
		return e.Outcome != sandbox.OutcomeNone
	}
	return e.Outcome == sandbox.OutcomeUnknown
}

// What is not planned, and not asked for.
var (
	plain     faultproxy.Plan
	noOptions adapter.Options
)
