package peer

import (
	"io"
	"net"
	"os"
	"sync"
)

// The three steps of a short stream once more, on a connection that many
// callers share: each side reads on one goroutine that nothing holds up and
// works on others, as whatever answers calls side by side has to. The data
// connection is dialled beside the mint, and the verdict asked for before the
// bytes are read.
const (
	shared  byte = 'S'
	verdict byte = 'V'
)

// serveShared answers what comes on conn, each call on a goroutine of its own.
func (m *minted) serveShared(conn net.Conn) error {
	var calls sync.WaitGroup
	defer calls.Wait()
	s := &sharing{minted: m, conn: conn, waiting: map[string]*pending{}}
	for {
		op, text, id, err := readHeader(conn)
		if err != nil {
			return nil // the client has enough
		}
		calls.Go(func() { s.answer(op, text, id) })
	}
}

// sharing is the server's side of a shared connection.
type sharing struct {
	*minted
	conn    net.Conn
	mu      sync.Mutex // of what follows, and of writing
	waiting map[string]*pending
}

func (s *sharing) answer(op byte, text string, id int64) {
	reply := ""
	switch op {
	case mint:
		reply = s.mint(text)
	case verdict:
		s.mu.Lock()
		p := s.waiting[text]
		delete(s.waiting, text)
		s.mu.Unlock()
		if p != nil {
			<-p.sent
			reply = string(done)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	writeHeader(s.conn, op, reply, id)
}

// mint returns a token, none where the file is not there.
func (s *sharing) mint(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	st, err := f.Stat()
	if err != nil {
		return ""
	}
	p := &pending{f: f, size: st.Size(), sent: make(chan struct{})}
	token, err := s.put(p)
	if err != nil {
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[token] = p
	return token
}

// sharer is the client's side of a shared connection.
type sharer struct {
	conn    net.Conn
	mu      sync.Mutex
	last    int64
	waiting map[int64]chan string
}

func dialShared(addr string) (*sharer, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	s := &sharer{conn: conn, waiting: map[int64]chan string{}}
	go s.read()
	return s, writeHeader(conn, shared, "", 0)
}

// read hands out the answers until the connection ends.
func (s *sharer) read() {
	for {
		_, text, id, err := readHeader(s.conn)
		s.mu.Lock()
		if err != nil {
			for _, answer := range s.waiting {
				close(answer)
			}
			s.mu.Unlock()
			return
		}
		s.waiting[id] <- text
		delete(s.waiting, id)
		s.mu.Unlock()
	}
}

// ask sends a call; its answer comes on the channel.
func (s *sharer) ask(op byte, text string) (<-chan string, error) {
	answer := make(chan string, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	s.waiting[s.last] = answer
	return answer, writeHeader(s.conn, op, text, s.last)
}

// BareShared returns a call that reads a file as long as buf into it, in three
// steps on a shared connection.
func BareShared(addr, path string, buf []byte) func() (int, error) {
	var s *sharer
	return func() (n int, err error) {
		if s == nil {
			if s, err = dialShared(addr); err != nil {
				return 0, err
			}
		}
		return s.short(addr, path, buf)
	}
}

func (s *sharer) short(addr, path string, buf []byte) (int, error) {
	token, err := s.ask(mint, path)
	if err != nil {
		return 0, err
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	minted := <-token
	ended, err := s.ask(verdict, minted)
	if err != nil {
		return 0, err
	}
	if err := writeHeader(conn, claim, minted, 0); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(conn, buf)
	if err == nil && <-ended == "" {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}
