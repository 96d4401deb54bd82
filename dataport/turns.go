package dataport

import (
	"context"
	"net"
	"time"

	"golang.org/x/time/rate"

	"github.com/controld/controld/fair"
)

// While several tenants move bytes, each piece has a turn: so long, and so
// many bytes. A peer that does not read costs its tenant's neighbours no more
// than that.
const (
	turnTime = 10 * time.Millisecond
	turnMost = 1 << 20
)

// PumpOptions say how a [Pump] works. Stall is required.
type PumpOptions struct {
	// Stall is how long a transfer may go without progress.
	Stall time.Duration
	// Splices is how many receptions use a pipe of the kernel at once, the
	// others a buffer of 1 MiB: an ordinary user gets 64 pipes of 1 MiB and
	// then only slow small ones, see pipe(7). Zero means no bound.
	Splices int
	// Turns, where not nil, shares the machine among tenants.
	Turns *fair.Gate
	// Quota returns how many bytes a second a tenant's transfers move in all,
	// nil where that has no bound. The function may be nil itself. It is asked
	// once a transfer.
	Quota func(tenant string) *rate.Limiter
}

// pacer lets one transfer move in pieces, as its tenant may.
type pacer struct {
	turns  *fair.Gate
	tenant string
	quota  *rate.Limiter // nil: none
}

func (p *Pump) pacer(tenant string) *pacer {
	pc := &pacer{turns: p.turns, tenant: tenant}
	if p.quota != nil {
		pc.quota = p.quota(tenant)
	}
	return pc
}

// next waits until the transfer may move a piece of at most want bytes. It
// returns how many it may be, and what ends the tenant's turn.
func (pc *pacer) next(want int64) (most int64, leave func()) {
	if pc.quota != nil {
		want = min(want, int64(pc.quota.Burst()))
	}
	if !pc.turns.Contended(pc.tenant) {
		return want, func() {}
	}
	end, err := pc.turns.Enter(context.Background(), pc.tenant)
	if err != nil { // never: that context does not end
		return min(want, turnMost), func() {}
	}
	timer := time.AfterFunc(turnTime, end)
	return min(want, turnMost), func() {
		timer.Stop()
		end()
	}
}

// payStep is how long a transfer that pays for its bytes waits without a look
// at whether it has ended.
const payStep = 100 * time.Millisecond

// pay waits until the tenant's quota has made up for what was moved, or ended
// says that it does not matter any more.
func (pc *pacer) pay(moved int64, ended func() bool) {
	if pc.quota == nil || moved <= 0 {
		return
	}
	until := time.Now().Add(pc.quota.ReserveN(time.Now(), int(moved)).Delay())
	for left := time.Until(until); left > 0 && !ended(); left = time.Until(until) {
		time.Sleep(min(left, payStep))
	}
}

// smooth has the kernel spread a send evenly over time, see socket(7),
// SO_MAX_PACING_RATE, where its tenant has a quota.
func (pc *pacer) smooth(conn net.Conn) {
	if pc.quota != nil {
		paceSocket(conn, uint64(pc.quota.Limit()))
	}
}
