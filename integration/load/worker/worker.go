// Package worker is the client side of every measurement. The load program
// re-executes itself as a worker, so that what a client costs can be told from
// what the daemon and the load program cost. A worker reads requests as JSON
// lines from its standard input, answers each on its standard output, and ends
// with its input.
package worker

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"github.com/controld/controld/adapter"
	"github.com/controld/controld/integration/load/peer"
)

// The stacks of a request, beside those of package peer.
const (
	Controld    = "controld"
	ControldTLS = "controld over TLS"
	Local       = "local"
)

// IsControld tells whether a stack is controld, in the clear or not.
func IsControld(stack string) bool { return stack == Controld || stack == ControldTLS }

// Request is one thing to do.
type Request struct {
	// Op is "down", "up", "recv", "call", "many", "flow", "mixed", "idle", or one of
	// DownCopy and its like.
	Op string
	// Stack names the program under test, Addr where it listens.
	Stack, Addr, Token string
	// Identity is the file that servers with TLS are known by.
	Identity string
	// Remote is a path at the server, Local one at the client.
	Remote, Local string
	// Size is in bytes, of one transfer or one content.
	Size int64
	Sync bool
	// Call is what op "call" calls: stat, read, write, stream or exec, so
	// many at a time for so long.
	Call     string
	InFlight int
	For      time.Duration
	// Count is how many transfers (many, flow, mixed) or connections (idle).
	Count int
	// Rate is the pace of a slowed transfer in bytes a second; 0: none.
	Rate int64
	// Timeout ends the request.
	Timeout time.Duration
	// Profile is where a CPU profile of this request goes, if anywhere.
	Profile string
}

// Reply is what came of a request.
type Reply struct {
	Error  string
	Took   time.Duration
	Bytes  int64
	P50    time.Duration
	P99    time.Duration
	PerSec float64
	Jain   float64
	Lost   int64 // bytes that did not arrive, or arrived wrong
}

// worker keeps its connections between requests.
type worker struct {
	sandboxes map[string]*adapter.Sandbox
	grpc      map[string]*peer.GRPCClient
	rpc2      map[string]*peer.RPC2Client
	held      []io.Closer
}

// Run answers requests until the input ends.
func Run(in io.Reader, out io.Writer) error {
	w := &worker{sandboxes: map[string]*adapter.Sandbox{}, grpc: map[string]*peer.GRPCClient{}, rpc2: map[string]*peer.RPC2Client{}}
	dec, enc := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	for {
		var req Request
		if err := dec.Decode(&req); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		reply, err := w.do(req)
		if err != nil {
			reply.Error = err.Error()
		}
		if err := enc.Encode(reply); err != nil {
			return err
		}
	}
}

func (w *worker) do(req Request) (Reply, error) {
	ctx, cancel := context.WithTimeout(context.Background(), req.Timeout)
	defer cancel()
	if req.Profile != "" {
		stop, err := profile(req.Profile)
		if err != nil {
			return Reply{}, err
		}
		defer stop()
	}
	switch req.Op {
	case "down", DownCopy, DownPipeline, DownMapped, "up", "recv":
		return w.bulk(ctx, req)
	case "call":
		return w.calls(ctx, req)
	case "many":
		return w.many(ctx, req)
	case "flow":
		return w.flow(ctx, req)
	case "mixed":
		return w.mixed(ctx, req)
	case "idle":
		return w.idle(ctx, req)
	}
	return Reply{}, fmt.Errorf("no op %q", req.Op)
}

func profile(path string) (stop func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); f.Close() }, nil
}

// trust is what a client of the request's server needs; nil in the clear.
func (r Request) trust() (*tls.Config, error) {
	if r.Stack == ControldTLS || r.Stack == peer.BareTLS {
		return peer.ClientTLS(r.Identity)
	}
	return nil, nil
}

// sandbox returns the one connection to a daemon, connected.
func (w *worker) sandbox(ctx context.Context, req Request) (*adapter.Sandbox, error) {
	if sb := w.sandboxes[req.Addr]; sb != nil {
		return sb, nil
	}
	trust, err := req.trust()
	if err != nil {
		return nil, err
	}
	sb, err := adapter.New(adapter.Options{Control: req.Addr, Token: req.Token, Client: "load/1", TLS: trust})
	if err != nil {
		return nil, err
	}
	w.sandboxes[req.Addr] = sb
	return sb, sb.Ping(ctx)
}

func (w *worker) dialGRPC(addr string) (c *peer.GRPCClient, err error) {
	if c = w.grpc[addr]; c == nil {
		c, err = peer.DialGRPC(addr)
		w.grpc[addr] = c
	}
	return c, err
}

func (w *worker) dialRPC2(addr string) (c *peer.RPC2Client, err error) {
	if c = w.rpc2[addr]; c == nil {
		c, err = peer.DialRPC2(addr)
		w.rpc2[addr] = c
	}
	return c, err
}
