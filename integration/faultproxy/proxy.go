// Package faultproxy stands between a client and a server and does to their
// connections what networks do: it ends them in order or by a reset at a chosen
// byte, stalls them, swallows what is sent, flips a bit, slows them down, cuts
// them into single bytes. Muxer is the vsock device of a microVM monitor.
//
// What does not belong here: the protocol. The proxy counts bytes and knows
// nothing of what they mean.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"time"
)

// Direction is which way bytes go.
type Direction int

// The directions, from the client's point of view.
const (
	Up Direction = iota
	Down
)

// String returns the direction's name.
func (d Direction) String() string { return [...]string{"up", "down"}[d] }

// Kind is what happens to a connection.
type Kind string

// The kinds of faults.
const (
	None Kind = ""
	// FIN ends both directions in good order, as if both peers had closed.
	FIN Kind = "fin"
	// RST resets the connection towards both peers.
	RST Kind = "rst"
	// Stall passes nothing more in the direction of the fault, and takes
	// nothing: the sender feels it. The other direction goes on.
	Stall Kind = "stall"
	// BlackHole takes everything from both peers and passes nothing on, not
	// even an end.
	BlackHole Kind = "black_hole"
	// Flip turns one bit of the byte at At and goes on.
	Flip Kind = "flip"
)

// Fault happens once on a connection, when At bytes have passed in its
// direction: at 0 before the first.
type Fault struct {
	Kind      Kind
	Direction Direction
	At        int64
	Bit       uint // of Flip, 0 to 7
}

// Plan is what is done to one connection. The zero value only passes it on.
type Plan struct {
	Fault Fault
	// Segment is the most bytes that are passed on at once; 0 is no bound.
	Segment int
	// Rate is the most bytes a second in each direction; 0 is no bound.
	Rate int64
}

// Proxy passes connections on to a server, each by its own plan.
type Proxy struct {
	ln   net.Listener
	dial func(context.Context) (net.Conn, error)
	plan func(n int) Plan
	ctx  context.Context
	end  context.CancelFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	struck []Fault
}

// Listen starts a proxy on a port of 127.0.0.1 of its own. dial connects to the
// server; plan is asked for what is done to the connection with the number n,
// from 0. The caller closes the proxy.
func Listen(dial func(context.Context) (net.Conn, error), plan func(n int) Plan) (*Proxy, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{ln: ln, dial: dial, plan: plan}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.all.Go(p.serve)
	return p, nil
}

// To returns the dial function of a fixed address.
func To(network, address string) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}
}

// Addr is where the proxy listens, as host:port.
func (p *Proxy) Addr() string { return p.ln.Addr().String() }

// Struck returns the faults that have happened so far.
func (p *Proxy) Struck() []Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Fault(nil), p.struck...)
}

// Close resets what is still connected and waits until nothing is left. It may
// be called twice.
func (p *Proxy) Close() error {
	err := p.ln.Close()
	p.end()
	p.all.Wait()
	return err
}

func (p *Proxy) serve() {
	for n := 0; ; n++ {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		plan := p.plan(n)
		p.all.Go(func() { p.cross(client, plan) })
	}
}

// cross passes one connection on until both directions have ended or the proxy
// is closed.
func (p *Proxy) cross(client net.Conn, plan Plan) {
	server, err := p.dial(p.ctx)
	if err != nil {
		reset(client)
		return
	}
	c := &crossing{p: p, plan: plan, client: client, server: server, began: time.Now()}
	release := context.AfterFunc(p.ctx, c.reset)
	defer release()
	defer c.close()
	var lanes sync.WaitGroup
	lanes.Go(func() { c.pump(Up) })
	lanes.Go(func() { c.pump(Down) })
	lanes.Wait()
}

// note remembers that a fault has happened.
func (p *Proxy) note(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.struck = append(p.struck, f)
}
