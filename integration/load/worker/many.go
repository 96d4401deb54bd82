package worker

import (
	"context"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/controld/controld/dataport"
	"github.com/controld/controld/rpc"
	"github.com/controld/controld/sandbox"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// share is what one of many transfers got.
type share struct {
	bytes int64
	took  time.Duration
	lost  int64
	err   error
}

// many reads one file Count times at once over one control connection. All
// transfers are minted and dialled first; they present their tokens together.
// Local is the same file, seen from here.
func (w *worker) many(ctx context.Context, req Request) (Reply, error) {
	content, err := os.ReadFile(req.Local)
	if err != nil {
		return Reply{}, err
	}
	sum := crc32.Checksum(content, castagnoli)
	conn, err := hello(ctx, req)
	if err != nil {
		return Reply{}, err
	}
	defer conn.Close()
	ready, err := prepare(ctx, conn, req)
	if err != nil {
		return Reply{}, err
	}
	shares := make([]share, req.Count)
	var wg sync.WaitGroup
	var start time.Time
	begin := make(chan struct{})
	for i := range shares {
		wg.Go(func() {
			<-begin
			shares[i] = fetch(ctx, conn, ready[i], req, sum, start)
		})
	}
	start = time.Now()
	close(begin)
	wg.Wait()
	return sumUp(shares, time.Since(start))
}

// sumUp adds up the shares and tells by Jain's index how even they are.
func sumUp(shares []share, took time.Duration) (Reply, error) {
	reply := Reply{Took: took}
	var sumOf, sumOfSquares float64
	for i, s := range shares {
		if s.err != nil {
			return reply, fmt.Errorf("transfer %d: %w", i, s.err)
		}
		x := float64(s.bytes) / s.took.Seconds()
		sumOf, sumOfSquares = sumOf+x, sumOfSquares+x*x
		reply.Bytes += s.bytes
		reply.Lost += s.lost
	}
	reply.Jain = sumOf * sumOf / (float64(len(shares)) * sumOfSquares)
	return reply, nil
}

// hello opens a control connection without the adapter.
func hello(ctx context.Context, req Request) (*rpc.Conn, error) {
	e, err := dataport.ParseEndpoint(req.Addr)
	if err != nil {
		return nil, err
	}
	trust, err := req.trust()
	if err != nil {
		return nil, err
	}
	raw, err := dataport.Dialer{TLS: trust}.Dial(ctx, e)
	if err != nil {
		return nil, err
	}
	conn := rpc.NewConn(raw, rpc.ConnOptions{})
	if _, err := conn.Hello(ctx, rpc.HelloParams{Protocol: rpc.ProtocolVersion, Token: req.Token, Client: "load/1"}); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// fetch claims one transfer and reads it, at a pace where there is one. What
// is missing or differs is lost; it is no error, but counted.
func fetch(ctx context.Context, conn *rpc.Conn, d dialled, req Request, sum uint32, start time.Time) share {
	dialled := func(context.Context) (net.Conn, error) { return d.conn, nil }
	data, err := dataport.Open(ctx, d.transfer.Token, []func(context.Context) (net.Conn, error){dialled}, nil)
	if err != nil {
		return share{err: err}
	}
	defer data.Close()
	if deadline, ok := ctx.Deadline(); ok {
		data.SetDeadline(deadline)
	}
	p := pace{rate: req.Rate, start: start}
	s := share{}
	got := uint32(0)
	buf := make([]byte, 16<<10)
	for s.bytes < req.Size {
		n, err := data.Read(buf[:min(int64(len(buf)), req.Size-s.bytes)])
		got = crc32.Update(got, castagnoli, buf[:n])
		s.bytes += int64(n)
		if err != nil {
			break
		}
		p.wait(s.bytes)
		runtime.Gosched() // readers take turns: what is uneven is the server's
	}
	s.took = time.Since(start)
	verdict, err := conn.TransferResult(ctx, d.transfer.ID)
	switch {
	case err != nil:
		s.err = err
	case s.bytes != req.Size || verdict.Bytes != req.Size:
		s.lost = max(req.Size-s.bytes, 1)
	case got != sum:
		s.lost = req.Size
	}
	return s
}

// dialled is a transfer whose token has not been presented yet.
type dialled struct {
	transfer rpc.Transfer
	conn     net.Conn
}

// prepare mints all transfers, and then dials: a connection without a token
// does not live long.
func prepare(ctx context.Context, conn *rpc.Conn, req Request) ([]dialled, error) {
	all := make([]dialled, req.Count)
	for i := range all {
		r, err := conn.ReadFileStream(ctx, req.Remote, sandbox.ReadOptions{})
		if err != nil {
			return nil, fmt.Errorf("mint %d: %w", i, err)
		}
		all[i].transfer = r.Transfer
	}
	for i := range all {
		ends := all[i].transfer.Endpoints
		if len(ends) == 0 {
			return nil, fmt.Errorf("mint %d: no endpoint", i)
		}
		e, err := dataport.ParseEndpoint(ends[0])
		if err != nil {
			return nil, err
		}
		if all[i].conn, err = (dataport.Dialer{}).Dial(ctx, e); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pace slows a transfer down.
type pace struct {
	rate  int64 // bytes a second; 0: as fast as it goes
	start time.Time
}

// wait sleeps until n bytes are due.
func (p pace) wait(n int64) {
	if p.rate > 0 {
		time.Sleep(time.Until(p.start.Add(time.Duration(float64(n) / float64(p.rate) * float64(time.Second)))))
	}
}

// idle opens connections, makes one call on each, and leaves them open.
func (w *worker) idle(ctx context.Context, req Request) (Reply, error) {
	for range req.Count {
		conn, err := hello(ctx, req)
		if err != nil {
			return Reply{}, err
		}
		w.held = append(w.held, conn)
		if _, err := conn.Stat(ctx, req.Remote, sandbox.StatOptions{}); err != nil {
			return Reply{}, err
		}
	}
	return Reply{}, nil
}
