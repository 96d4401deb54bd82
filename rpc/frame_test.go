package rpc

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// chunks yields its input in pieces of random size.
type chunks struct {
	rng *rand.Rand
	in  []byte
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.in) == 0 {
		return 0, io.EOF
	}
	n := min(1+c.rng.IntN(1<<(c.rng.IntN(18))), len(c.in), len(p))
	copy(p, c.in[:n])
	c.in = c.in[n:]
	return n, nil
}

func TestLineReader(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		var want [][]byte
		var in []byte
		for range 1 + rng.IntN(40) {
			line := bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(1<<rng.IntN(19)))
			if len(line) > 0 {
				want = append(want, line)
			}
			in = append(append(in, line...), '\n')
			in = append(in, []string{"", "\n", " \t\r\n"}[rng.IntN(3)]...)
		}
		in = append(in, "cut short"...)
		for _, src := range []io.Reader{&chunks{rng, in}, iotest.DataErrReader(bytes.NewReader(in))} {
			l := NewLineReader(src, 1<<20)
			l.eager = rng.IntN(2) == 0
			for i, line := range want {
				got, err := l.Next()
				if err != nil || !bytes.Equal(got, line) {
					t.Fatalf("line %d: %d bytes, %v, want %d bytes", i, len(got), err, len(line))
				}
			}
			if _, err := l.Next(); err != io.EOF {
				t.Fatalf("at the end: %v", err)
			}
			l.Release()
		}
	}
}

func TestLineLimit(t *testing.T) {
	for _, most := range []int{10, 511, 512, 513, 16 << 10, 100000, 2 << 20} {
		for _, one := range []bool{false, true} {
			if one && most > 20000 {
				continue
			}
			var src io.Reader = strings.NewReader(strings.Repeat("x", most) + "\n" + strings.Repeat("y", most+1) + "\n")
			if one {
				src = iotest.OneByteReader(src)
			}
			l := NewLineReader(src, most)
			if line, err := l.Next(); err != nil || len(line) != most {
				t.Fatalf("limit %d: %d bytes, %v", most, len(line), err)
			}
			if _, err := l.Next(); !errors.Is(err, ErrLineTooLong) {
				t.Fatalf("limit %d: %v", most, err)
			}
			l.Release()
		}
	}
}

// TestLineReaderIdle: no larger buffer is held while nothing comes.
func TestLineReaderIdle(t *testing.T) {
	here, there := net.Pipe()
	defer here.Close()
	l := NewLineReader(there, 1<<20)
	waiting := make(chan int, 10)
	l.src = readerFunc(func(p []byte) (int, error) {
		waiting <- len(p)
		return there.Read(p)
	})
	go func() {
		for range 3 {
			if _, err := l.Next(); err != nil {
				return
			}
		}
		l.Next()
	}()
	defer there.Close()
	<-waiting
	io.WriteString(here, strings.Repeat("a", 300<<10)+"\n")
	io.WriteString(here, "b\n")
	io.WriteString(here, "c\n")
	last := 0
	for end := time.After(10 * time.Second); last != smallLine; {
		select {
		case last = <-waiting:
		case <-end:
			t.Fatalf("waits with a buffer of %d bytes", last)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// pair is a TCP connection with bounded buffers.
func pair(t *testing.T) (near, there net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if near, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if there, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); there.Close() })
	near.(*net.TCPConn).SetWriteBuffer(64 << 10)
	there.(*net.TCPConn).SetReadBuffer(64 << 10)
	return near, there
}

func message(n int) *Message {
	m := newMessage()
	encoder{m}.content(bytes.Repeat([]byte("ab\n"), n/3))
	return m
}

// TestWriter: many senders, all sizes, every kind of connection; each line
// arrives whole and each message is released once.
func TestWriter(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) (net.Conn, net.Conn){
		"tcp":  pair,
		"pipe": func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() },
	} {
		t.Run(name, func(t *testing.T) {
			near, there := connect(t)
			defer near.Close()
			w := NewWriter(near, 10*time.Second, nil)
			var all sync.WaitGroup
			var mu sync.Mutex
			released, bytesSent := 0, int64(0)
			for range 8 {
				all.Go(func() {
					for i := range 40 {
						m := message(1 << (i % 18))
						mu.Lock()
						bytesSent += m.Size() + 1
						mu.Unlock()
						m.OnRelease(func() { mu.Lock(); released++; mu.Unlock() })
						if err := w.Send(m); err != nil {
							t.Error(err)
						}
					}
				})
			}
			done := make(chan int64)
			go func() {
				lines, n := 0, int64(0)
				l := NewLineReader(there, 1<<20)
				for lines < 8*40 {
					line, err := l.Next()
					if err != nil || !bytes.HasPrefix(line, []byte(`{"text":"`)) || !bytes.HasSuffix(line, []byte(`"}`)) {
						t.Errorf("line %d: %v", lines, err)
						break
					}
					lines++
					n += int64(len(line)) + 1
				}
				done <- n
			}()
			all.Wait()
			if n := <-done; n != bytesSent {
				t.Fatalf("%d bytes came, %d were sent", n, bytesSent)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			w.Wait()
			if released != 8*40 {
				t.Fatalf("%d released", released)
			}
		})
	}
}

// TestWriterTimeout: a peer that takes nothing ends the writer, which tells
// once and releases everything.
func TestWriterTimeout(t *testing.T) {
	for name, connect := range map[string]func(*testing.T) (net.Conn, net.Conn){
		"tcp":  pair,
		"pipe": func(*testing.T) (net.Conn, net.Conn) { return net.Pipe() },
	} {
		t.Run(name, func(t *testing.T) {
			near, _ := connect(t)
			defer near.Close()
			told := make(chan error, 2)
			w := NewWriter(near, 100*time.Millisecond, func(err error) { told <- err })
			released := make(chan bool, 100)
			for range 10 {
				m := message(1 << 20)
				m.OnRelease(func() { released <- true })
				w.Send(m)
			}
			begin := time.Now()
			if err := w.Flush(); !errors.Is(err, ErrWriteTimeout) {
				t.Fatalf("got %v", err)
			}
			if d := time.Since(begin); d > 5*time.Second {
				t.Fatalf("after %v", d)
			}
			if err := <-told; !errors.Is(err, ErrWriteTimeout) {
				t.Fatalf("told %v", err)
			}
			w.Wait()
			if err := w.Send(message(9)); !errors.Is(err, ErrWriteTimeout) {
				t.Fatalf("later: %v", err)
			}
			for range 10 {
				<-released
			}
		})
	}
}
