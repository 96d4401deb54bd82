// Command bare is what a daemon's times are compared with: a process that does
// what the daemon does by the plainest means of Go, with nothing around it. It
// listens on loopback, prints where, and ends with its standard input.
//
// What does not belong here: measuring, and anything that controld promises.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, "bare:", err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	io.Copy(io.Discard, os.Stdin)
}

// longest is how long a line may be; of a longer one so much is dropped, for so
// long, that the peer reads the answer.
const (
	longest  = 16 << 10
	dropped  = 1 << 20
	dropTime = time.Second
)

func refuse(conn net.Conn) {
	io.WriteString(conn, "too long\n")
	conn.(*net.TCPConn).CloseWrite()
	conn.SetReadDeadline(time.Now().Add(dropTime))
	io.CopyN(io.Discard, conn, dropped)
}

// serve reads line by line and answers apart, as whatever answers calls side by
// side has to.
func serve(conn net.Conn) {
	var calls sync.WaitGroup
	defer calls.Wait()
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in := bufio.NewReaderSize(conn, longest)
	for {
		line, err := in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			refuse(conn)
		}
		if err != nil {
			return
		}
		call, path, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		calls.Go(func() {
			if err := answer(ctx, conn, call, path); err != nil {
				conn.Close()
			}
		})
	}
}

// answer does what a line asks for: "ping", "read PATH", "run", "endless"
// bytes, or a "flood" of output that ends with the connection.
func answer(ctx context.Context, conn net.Conn, call, path string) error {
	switch call {
	case "ping":
	case "read":
		if _, err := os.ReadFile(path); err != nil {
			return err
		}
	case "run":
		if _, err := exec.Command("/bin/sh", "-c", "true").Output(); err != nil {
			return err
		}
	case "endless":
		_, err := io.Copy(conn, zeros{})
		return err
	case "flood":
		return flood(ctx)
	default:
		return fmt.Errorf("no call %q", call)
	}
	_, err := io.WriteString(conn, "done\n")
	return err
}

// zeros never ends.
type zeros struct{}

// Read implements io.Reader.
func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// flood reads what a command never stops writing, and keeps the end of it.
func flood(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "yes")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	kept, buf := make([]byte, 4<<20), make([]byte, 64<<10)
	for at := 0; ; {
		n, err := out.Read(buf)
		if err != nil {
			cmd.Wait()
			return err
		}
		at = (at + copy(kept[at:], buf[:n])) % (len(kept) - len(buf))
	}
}
