package goals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/controld/controld/integration/prove/check"
	"github.com/controld/controld/integration/prove/ground"
	"github.com/controld/controld/integration/prove/proof"
	"github.com/controld/controld/integration/strangers"
	"github.com/controld/controld/sandbox"
)

// loris is G10: thousands who connect to the data plane and are silent, or send
// a byte a second.
func loris(g *ground.Ground) proof.Goal {
	return proof.Goal{
		ID: "G10", Promise: "who connects and says nothing is cut off in time, costs little and holds nobody up",
		Quick: 2, Lanes: 1,
		Open:  opens(g, openLoris),
		Judge: func(t *proof.Tally) []string { return missingWindows(t, honestTransfers) },
	}
}

// honestTransfers are those that go on meanwhile.
const honestTransfers = "transfer"

// A crowd is so large where the limit of descriptors allows, of which the daemon
// gives strangers a quarter. What fewer than leastShare of them cost does not
// show beside what the transfers do.
const (
	silentMost       = 5000
	slowMost         = 2000
	leastShare       = .25
	strangersQuarter = 4
	ownDescriptors   = 1000
)

// What one stranger may cost, and when the daemon cuts it off.
const (
	strangerMemory = 16 << 10
	strangerTime   = 5 * time.Second
)

// A point has so many windows of transfers without the crowd and with it.
const (
	lorisWindows  = 4
	transferTime  = 400 * time.Millisecond
	transferBytes = 64 << 10
)

// crowded is a daemon of which strangers want something.
type crowded struct {
	served
	silent, slow int
	content      []byte
}

func openLoris(ctx context.Context, g *ground.Ground) (*crowded, error) {
	const want = strangersQuarter*(silentMost+slowMost) + ownDescriptors
	share := min(1, float64(descriptors(want)-ownDescriptors)/(want-ownDescriptors))
	if share < leastShare {
		return nil, proof.Lacking(fmt.Sprintf("a limit of %d descriptors (ulimit -Hn)", want))
	}
	c := &crowded{silent: int(share * silentMost), slow: int(share * slowMost), content: bytes.Repeat([]byte("honest "), transferBytes/7)}
	if err := c.open(ctx, g); err != nil {
		return c, err
	}
	_, err := c.client.WriteFile(ctx, "f", c.content, sandbox.WriteOptions{})
	return c, err
}

// transfer is one of an honest client, there and back.
func (c *crowded) transfer(ctx context.Context) error {
	if _, err := c.client.WriteFileStream(ctx, "g", bytes.NewReader(c.content), sandbox.WriteOptions{}); err != nil {
		return err
	}
	s, err := c.client.ReadFileStream(ctx, "f", sandbox.ReadOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	got, err := io.ReadAll(s)
	if err == nil && !bytes.Equal(got, c.content) {
		err = errors.New("other bytes came than were sent")
	}
	return err
}

// honest is a window of transfers, of which none may fail.
func (c *crowded) honest(ctx context.Context, p *proof.Point) []time.Duration {
	took, err := window(ctx, transferTime, c.transfer)
	if err != nil {
		p.Violate("a transfer: %v", err)
	}
	p.Add("transfers", len(took))
	return took
}

// Try implements [proof.Prover].
func (c *crowded) Try(ctx context.Context, p *proof.Point) error {
	var alone [lorisWindows][]time.Duration
	for i := range alone {
		alone[i] = c.honest(ctx, p)
	}
	before, err := check.Memory(c.daemon.PID(), "VmRSS")
	if err != nil {
		return err
	}
	crowd, err := strangers.Gather(ctx, c.daemon.Data(), c.silent, c.slow)
	if err != nil {
		return err
	}
	defer crowd.Close()
	seenOut := make(chan seen, 1)
	go func() { seenOut <- watch(ctx, crowd) }()
	var beside [][]time.Duration
	for i := 0; i < lorisWindows; i++ {
		took := c.honest(ctx, p)
		if crowd.Inside() < c.silent+c.slow {
			break // it was another crowd at the end of the window
		}
		beside = append(beside, took)
	}
	after, err := check.Memory(c.daemon.PID(), "VmHWM")
	(<-seenOut).tell(p)
	for i, took := range beside {
		compare(&p.Tally, honestTransfers, took, map[string][]time.Duration{aloneControl: alone[i]})
	}
	c.weigh(p, after-before)
	return err
}

// seen is what became of a crowd.
type seen struct {
	stayed []time.Duration
	err    error
}

// watch sees the crowd out.
func watch(ctx context.Context, crowd *strangers.Crowd) seen {
	ctx, cancel := context.WithTimeout(ctx, mostTimes*strangerTime)
	defer cancel()
	stayed, err := crowd.Watch(ctx)
	return seen{stayed, err}
}

func (s seen) tell(p *proof.Point) {
	if s.err != nil {
		p.Violate("%v", s.err)
		return
	}
	if least := slices.Min(s.stayed); least < strangerTime {
		p.Violate("a stranger was cut off after %v", least)
	}
	for _, d := range s.stayed {
		p.Measure("a stranger is let in, s", d.Seconds())
	}
}

// weigh looks at what the crowd costs.
func (c *crowded) weigh(p *proof.Point, grown int64) {
	n := c.silent + c.slow
	p.Add("silent strangers", c.silent)
	p.Add("slow strangers", c.slow)
	each := max(0, grown) / int64(n)
	p.Measure("memory of a stranger, KiB", float64(each)/1024)
	if each > strangerMemory {
		p.Violate("each of %d strangers costs %d bytes", n, each)
	}
}

// Close implements [proof.Prover].
func (c *crowded) Close(t *proof.Tally) error {
	closeWindows(t, honestTransfers)
	c.end()
	return nil
}
