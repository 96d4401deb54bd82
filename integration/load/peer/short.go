package peer

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

// A short stream in three steps, as a control and a data port take them, with
// no protocol around them: a mint on a connection that stays, the bytes over a
// new one that names the token, a verdict on the first.
const (
	mint  byte = 'M'
	claim byte = 'C'
)

const tokenSize = 16

// minted are the mints of a server, by token.
type minted struct {
	mu  sync.Mutex
	all map[string]*pending
}

// pending is a file that waits for its data connection.
type pending struct {
	f    *os.File
	size int64
	sent chan struct{}
}

func (m *minted) put(p *pending) (string, error) {
	token := make([]byte, tokenSize)
	if _, err := rand.Read(token); err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[string(token)] = p
	return string(token), nil
}

func (m *minted) take(token string) *pending {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.all[token]
	delete(m.all, token)
	return p
}

// mintBare answers each path that comes on conn with a token, and says done
// when its bytes are sent.
func (m *minted) mintBare(conn net.Conn, path string, size int64) error {
	for {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		p := &pending{f: f, size: size, sent: make(chan struct{})}
		token, err := m.put(p)
		if err != nil {
			return err
		}
		if _, err := conn.Write([]byte(token)); err != nil {
			return err
		}
		<-p.sent
		if _, err := conn.Write([]byte{done}); err != nil {
			return err
		}
		if _, path, size, err = readHeader(conn); err != nil {
			return nil // the client has enough
		}
	}
}

// claimBare sends what a token stands for.
func (m *minted) claimBare(conn net.Conn, token string) error {
	p := m.take(token)
	if p == nil {
		return fmt.Errorf("no such token")
	}
	defer p.f.Close()
	_, err := io.CopyN(conn, p.f, p.size)
	close(p.sent)
	return err
}

// BareShort returns a call that reads the first bytes of a file into buf, in
// the three steps. One call at a time.
func BareShort(addr, path string, buf []byte) func() (int, error) {
	var control net.Conn
	return func() (int, error) {
		if control == nil {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				return 0, err
			}
			control = conn
		}
		if err := writeHeader(control, mint, path, int64(len(buf))); err != nil {
			return 0, err
		}
		token := make([]byte, tokenSize)
		if _, err := io.ReadFull(control, token); err != nil {
			return 0, err
		}
		n, err := bareClaim(addr, string(token), buf)
		if err != nil {
			return n, err
		}
		_, err = io.ReadFull(control, make([]byte, 1))
		return n, err
	}
}

func bareClaim(addr, token string, buf []byte) (int, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := writeHeader(conn, claim, token, 0); err != nil {
		return 0, err
	}
	return io.ReadFull(conn, buf)
}
