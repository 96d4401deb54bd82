package strangers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Crowd is many connections to a data port of which no preamble is ever whole.
// Nobody waits for each of them: they are looked at together, every look.
type Crowd struct {
	members []member
	inside  atomic.Int64
}

// member is one of them.
type member struct {
	conn net.Conn
	fd   int
	slow bool
	at   time.Time // before its dial
	// stayed is how long it was let in; 0 while it is.
	stayed time.Duration
}

// sources is from how many a crowd comes, look how often it is looked at, and
// drip how often a slow one sends a byte.
const (
	sources = 64
	look    = 50 * time.Millisecond
	drip    = time.Second
)

// Gather dials silent connections and slow ones. The caller closes the crowd.
func Gather(ctx context.Context, addr string, silent, slow int) (*Crowd, error) {
	c := &Crowd{members: make([]member, silent+slow)}
	const dialers = 8
	errs := make([]error, dialers)
	var all sync.WaitGroup
	for d := range dialers {
		all.Go(func() {
			for i := d; i < len(c.members) && errs[d] == nil; i += dialers {
				c.members[i], errs[d] = join(ctx, i, addr)
				c.members[i].slow = i >= silent
			}
		})
	}
	all.Wait()
	c.inside.Store(int64(len(c.members)))
	if err := errors.Join(errs...); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func join(ctx context.Context, i int, addr string) (member, error) {
	m := member{at: time.Now()}
	var err error
	if m.conn, err = Dial(ctx, i%sources, addr); err != nil {
		return m, err
	}
	raw, err := m.conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return m, err
	}
	return m, raw.Control(func(fd uintptr) { m.fd = int(fd) })
}

// Inside is how many have not been cut off.
func (c *Crowd) Inside() int { return int(c.inside.Load()) }

// Watch has the slow ones send until all have been cut off, and returns how long
// each was let in, to a look. An error tells who was not cut off, or was
// answered.
func (c *Crowd) Watch(ctx context.Context) ([]time.Duration, error) {
	tick := time.NewTicker(look)
	defer tick.Stop()
	for last := time.Now(); c.Inside() > 0; {
		if time.Since(last) >= drip {
			last = last.Add(drip)
			c.say()
		}
		if err := c.look(); err != nil {
			return nil, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d strangers are still in: %w", c.Inside(), len(c.members), ctx.Err())
		}
	}
	stayed := make([]time.Duration, len(c.members))
	for i := range c.members {
		stayed[i] = c.members[i].stayed
	}
	return stayed, nil
}

// say has every slow one send a byte.
func (c *Crowd) say() {
	for i := range c.members {
		if m := &c.members[i]; m.slow && m.stayed == 0 {
			m.conn.Write([]byte("C")) // who was cut off meanwhile is seen by look
		}
	}
}

// look finds who has been cut off.
func (c *Crowd) look() error {
	fds := make([]unix.PollFd, 0, len(c.members))
	of := make([]*member, 0, len(c.members))
	for i := range c.members {
		if m := &c.members[i]; m.stayed == 0 {
			fds, of = append(fds, unix.PollFd{Fd: int32(m.fd), Events: unix.POLLIN}), append(of, m)
		}
	}
	if _, err := unix.Poll(fds, 0); err != nil && err != unix.EINTR {
		return err
	}
	for i, fd := range fds {
		if fd.Revents == 0 {
			continue
		}
		var b [1]byte
		if n, _ := of[i].conn.Read(b[:]); n > 0 {
			return errors.New("a stranger was answered")
		}
		of[i].stayed = time.Since(of[i].at)
		c.inside.Add(-1)
	}
	return nil
}

// Close ends the connections that there are.
func (c *Crowd) Close() {
	for _, m := range c.members {
		if m.conn != nil {
			m.conn.Close()
		}
	}
}
