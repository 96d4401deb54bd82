package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is far more than anything here takes.
const patience = 30 * time.Second

// payload is what both sides say.
var payload = bytes.Repeat([]byte("0123456789abcdef"), 5000)

// pair connects a client through a proxy with the plan and returns both ends.
func pair(t *testing.T, plan Plan) (p *Proxy, client, server *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p, err = Listen(To("tcp", ln.Addr().String()), func(int) Plan { return plan })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	near, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []net.Conn{near, far} {
		c.SetDeadline(time.Now().Add(patience))
		t.Cleanup(func() { c.Close() })
	}
	return p, near.(*net.TCPConn), far.(*net.TCPConn)
}

// ends returns the sender and the receiver of a direction.
func ends(d Direction, client, server *net.TCPConn) (from, to *net.TCPConn) {
	if d == Up {
		return client, server
	}
	return server, client
}

// TestCuts: exactly the bytes before the cut arrive, and then what the cut
// says, on both sides.
func TestCuts(t *testing.T) {
	const at = 33333
	for _, d := range []Direction{Up, Down} {
		for kind, want := range map[Kind]error{FIN: nil, RST: syscall.ECONNRESET} {
			t.Run(d.String()+" "+string(kind), func(t *testing.T) {
				p, client, server := pair(t, Plan{Fault: Fault{Kind: kind, Direction: d, At: at}})
				from, to := ends(d, client, server)
				go from.Write(payload)
				got, err := io.ReadAll(to)
				if !errors.Is(err, want) || kind == FIN && !bytes.Equal(got, payload[:at]) || len(got) > at {
					t.Errorf("got %d bytes, %v", len(got), err)
				}
				if _, err := io.ReadAll(from); !errors.Is(err, want) {
					t.Errorf("the sender sees %v", err)
				}
				if s := p.Struck(); len(s) != 1 || s[0].Kind != kind {
					t.Errorf("struck %v", s)
				}
			})
		}
	}
}

// TestCutBehindTheLastByte needs no further byte to strike.
func TestCutBehindTheLastByte(t *testing.T) {
	_, client, server := pair(t, Plan{Fault: Fault{Kind: FIN, Direction: Down, At: int64(len(payload))}})
	if _, err := server.Write(payload); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); err != nil || len(got) != len(payload) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
}

// TestSilence: behind a stall or in a black hole nothing comes, and no end; a
// stall leaves the other direction alone.
func TestSilence(t *testing.T) {
	for kind, other := range map[Kind]bool{Stall: true, BlackHole: false} {
		t.Run(string(kind), func(t *testing.T) {
			p, client, server := pair(t, Plan{Fault: Fault{Kind: kind, Direction: Down, At: 10}})
			if _, err := server.Write(payload[:100]); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(io.LimitReader(client, 10)); err != nil || len(got) != 10 {
				t.Fatalf("got %q, %v", got, err)
			}
			for len(p.Struck()) == 0 {
				time.Sleep(time.Millisecond)
			}
			server.CloseWrite()
			client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d bytes, %v", n, err)
			}
			if _, err := client.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if !other {
				server.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			}
			if _, err := server.Read(make([]byte, 1)); (err == nil) != other {
				t.Errorf("the other direction: %v", err)
			}
		})
	}
}

// TestFlip turns one bit and nothing else.
func TestFlip(t *testing.T) {
	for _, d := range []Direction{Up, Down} {
		p, client, server := pair(t, Plan{Fault: Fault{Kind: Flip, Direction: d, At: 40000, Bit: 3}})
		from, to := ends(d, client, server)
		go func() {
			from.Write(payload)
			from.CloseWrite()
		}()
		got, err := io.ReadAll(to)
		want := slices.Clone(payload)
		want[40000] ^= 8
		if err != nil || !bytes.Equal(got, want) || len(p.Struck()) != 1 {
			t.Errorf("%s: %d bytes, %v, struck %v", d, len(got), err, p.Struck())
		}
	}
}

// TestShapes: segments and rates change no byte, and a rate takes its time.
func TestShapes(t *testing.T) {
	for name, plan := range map[string]Plan{"plain": {}, "single bytes": {Segment: 1}, "slow": {Rate: 400000}} {
		t.Run(name, func(t *testing.T) {
			_, client, server := pair(t, plan)
			began := time.Now()
			go func() {
				client.Write(payload)
				client.CloseWrite()
			}()
			if got, err := io.ReadAll(server); err != nil || !bytes.Equal(got, payload) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if took := time.Since(began); plan.Rate > 0 && took < 150*time.Millisecond {
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestMuxer: an end of the host's side ends both, and the wrong port is
// refused.
func TestMuxer(t *testing.T) {
	near, far := net.Pipe()
	path := filepath.Join(t.TempDir(), "m")
	m, err := ListenMuxer(path, func(context.Context) (net.Conn, error) { return far, nil })
	if err != nil {
		t.Fatal(err)
	}
	if want := "hybrid-vsock://" + path + ":52"; m.URL() != want {
		t.Errorf("%s, want %s", m.URL(), want)
	}
	ask := func(line string) net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, line)
		return conn
	}
	wrong := ask("CONNECT 53\n")
	if got, _ := io.ReadAll(wrong); len(got) != 0 {
		t.Errorf("the wrong port is answered %q", got)
	}
	wrong.Close()
	host := ask("CONNECT 52\nfrom the host")
	buf := make([]byte, 13)
	if _, err := io.ReadFull(near, buf); err != nil || string(buf) != "from the host" {
		t.Errorf("the guest got %q, %v", buf, err)
	}
	answer := make([]byte, 14)
	if _, err := io.ReadFull(host, answer); err != nil || string(answer) != "OK 1073741824\n" {
		t.Errorf("answered %q, %v", answer, err)
	}
	host.(*net.UnixConn).CloseWrite()
	if _, err := io.ReadAll(host); err != nil {
		t.Error(err)
	}
	host.Close()
	m.Close()
}
