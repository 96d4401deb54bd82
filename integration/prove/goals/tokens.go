package goals

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"

	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
	"github.com/controld/controld/transfer"
)

// tokens is G6: a token that is presented many times at once.
func tokens(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G6", Promise: "of all that present one token at once, one wins",
		Quick: 1000, Lanes: 1, Mutant: "",
		Open: opens(g, openPresented),
		Judge: func(t *proof.Tally) []string {
			if t.Faults["on sockets"] == 0 {
				return []string{"no round went over sockets"}
			}
			return nil
		},
	}
}

// presentations is how many present a token, and socketRounds that one round
// in so many goes over the sockets of a daemon; the others are at the table.
const (
	presentations = 200
	socketRounds  = 20
)

// presented is a table, and a daemon, whose tokens are presented.
type presented struct {
	table   *transfer.Table
	daemon  *ground.Daemon
	control *rpc.Conn
}

func openPresented(ctx context.Context, g *ground.Ground) (*presented, error) {
	f := &presented{table: transfer.NewTable(transfer.Config{})}
	place, err := g.Place()
	if err != nil {
		return f, err
	}
	if f.daemon, err = place.Start(ctx, "--max-unauthenticated", "0", "--max-unauthenticated-each", "0", "--max-failed-tokens", "0"); err != nil {
		return f, err
	}
	conn, err := net.Dial("tcp", f.daemon.Control())
	if err != nil {
		return f, err
	}
	f.control = rpc.NewConn(conn, rpc.ConnOptions{})
	if _, err := f.control.Hello(ctx, rpc.HelloParams{Protocol: 1, Token: place.Secret, Client: "prove/1"}); err != nil {
		return f, err
	}
	return f, put(filepath.Join(place.Cwd(), "f"), []byte("content"))
}

// Try implements [proof.Prover].
func (f *presented) Try(ctx context.Context, p *proof.Point) error {
	round, where := f.atTable, "at the table"
	if p.N%socketRounds == 0 {
		round, where = f.onSockets, "on sockets"
	}
	p.Fault(where)
	winners, err := round(ctx)
	p.State(fmt.Sprintf("%d winners", winners))
	if winners != 1 {
		p.Violate("%d of %d presentations %s won: %v", winners, presentations, where, err)
		return nil
	}
	return err
}

// atOnce lets everybody present the token at the same time and counts winners.
func atOnce(present func(i int) (won bool, err error)) (winners int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	start := make(chan struct{})
	for i := range presentations {
		all.Go(func() {
			<-start
			won, perr := present(i)
			mu.Lock()
			defer mu.Unlock()
			if won {
				winners++
			} else if perr != nil {
				err = perr
			}
		})
	}
	close(start)
	all.Wait()
	return winners, err
}

// atTable presents to the table of transfers itself.
func (f *presented) atTable(ctx context.Context) (int, error) {
	open := func(context.Context) (sandbox.Source, error) {
		return sandbox.ContentSource(sandbox.FileContent{Data: []byte("content"), Size: 7}), nil
	}
	owner := transfer.Owner{Tenant: "prove", Sandbox: "default", Group: transfer.NewGroup(nil)}
	t, token, err := f.table.MintRead(ctx, owner, open)
	if err != nil {
		return 0, err
	}
	defer t.Fail(&sandbox.Error{Kind: sandbox.KindAborted, Op: "prove"})
	return atOnce(func(int) (bool, error) {
		_, err := f.table.Claim(token, nil)
		if err != nil && sandbox.KindOf(err) != sandbox.KindTokenInvalid {
			return false, err
		}
		return err == nil, nil
	})
}

// onSockets presents to a daemon, each on a connection of its own.
func (f *presented) onSockets(ctx context.Context) (int, error) {
	r, err := f.control.ReadFileStream(ctx, "f", sandbox.ReadOptions{})
	if err != nil {
		return 0, err
	}
	conns := make([]net.Conn, presentations)
	for i := range conns {
		if conns[i], err = net.Dial("tcp", f.daemon.Data()); err != nil {
			return 0, err
		}
		defer conns[i].Close()
	}
	return atOnce(func(i int) (bool, error) {
		if _, err := io.WriteString(conns[i], "CTRLD1 "+r.Transfer.Token+"\n"); err != nil {
			return false, err
		}
		answer := make([]byte, 3)
		io.ReadFull(conns[i], answer) // who gets none has not won
		return string(answer) == "OK\n", nil
	})
}

// Close implements [proof.Prover].
func (f *presented) Close(*proof.Tally) error {
	f.table.Close(&sandbox.Error{Kind: sandbox.KindAborted, Op: "prove"})
	if f.control != nil {
		f.control.Close()
	}
	if f.daemon != nil {
		f.daemon.Stop()
	}
	return nil
}
