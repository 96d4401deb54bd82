package faultproxy

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Muxer emulates the vsock device of Firecracker on a Unix socket: it answers
// CONNECT, takes an end of file from the host for the end of both directions,
// does not pass on one of the guest, and cuts the connection 2 s after either.
type Muxer struct {
	ln    net.Listener
	guest func(context.Context) (net.Conn, error)
	all   sync.WaitGroup
}

// muxerPort is the one that the guest listens on.
const muxerPort = 52

// ListenMuxer starts a muxer on the Unix socket at path. guest dials the guest's
// end. The caller closes the muxer.
func ListenMuxer(path string, guest func(context.Context) (net.Conn, error)) (*Muxer, error) {
	ln, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	m := &Muxer{ln: ln, guest: guest}
	m.all.Go(m.serve)
	return m, nil
}

// URL is where clients find the guest.
func (m *Muxer) URL() string { return fmt.Sprintf("hybrid-vsock://%s:%d", m.ln.Addr(), muxerPort) }

// Close accepts nothing more and waits until no connection is left: the caller
// ends those.
func (m *Muxer) Close() error {
	err := m.ln.Close()
	m.all.Wait()
	return err
}

// muxerCut is how long a connection lives on after an end.
const muxerCut = 2 * time.Second

func (m *Muxer) serve() {
	for {
		host, err := m.ln.Accept()
		if err != nil {
			return
		}
		m.all.Go(func() { m.connection(host) })
	}
}

// asked reads the line of CONNECT, byte by byte, and tells whether it names
// the port.
func (m *Muxer) asked(host net.Conn) bool {
	var line []byte
	for b := make([]byte, 1); len(line) < 32; line = append(line, b[0]) {
		if _, err := io.ReadFull(host, b); err != nil || b[0] == '\n' {
			break
		}
	}
	var port int
	_, err := fmt.Sscanf(string(line), "CONNECT %d", &port)
	return err == nil && port == muxerPort
}

func (m *Muxer) connection(host net.Conn) {
	defer host.Close()
	if !m.asked(host) {
		return
	}
	guest, err := m.guest(context.Background())
	if err != nil {
		return
	}
	defer guest.Close()
	fmt.Fprintf(host, "OK %d\n", 1073741824)
	guestEnded, hostEnded := make(chan struct{}), make(chan struct{})
	var copies sync.WaitGroup
	copies.Go(func() {
		defer close(guestEnded)
		io.CopyBuffer(host, guest, make([]byte, 64<<10))
	})
	copies.Go(func() {
		defer close(hostEnded)
		io.CopyBuffer(guest, host, make([]byte, 64<<10))
	})
	select {
	case <-hostEnded: // both directions end, at once for the guest
		closeWrite(guest)
		if half, ok := guest.(interface{ CloseRead() error }); ok {
			half.CloseRead()
		}
	case <-guestEnded:
	}
	timer := time.NewTimer(muxerCut)
	select {
	case <-timer.C:
	case <-hostEnded:
	}
	host.Close()
	guest.Close()
	copies.Wait()
	timer.Stop()
}
