package docker

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/moby/moby/client"

	"github.com/controld/controld/sandboxhost/driver/hostroot"
	"github.com/controld/controld/sandboxhost/driver/launch"
)

// dial opens a connection to the agent of a container: a relay there, on the
// standard input and output of an exec.
func (r remote) dial(ctx context.Context, container string) (net.Conn, error) {
	made, err := r.engine.ExecCreate(ctx, container, client.ExecCreateOptions{
		User: "0:0", AttachStdin: true, AttachStdout: true, AttachStderr: true,
		Cmd: append(append([]string{hostroot.Agent}, r.agent.Args...), "relay", "--listen", launch.SocketURL(hostroot.Link)),
	})
	if err != nil {
		return nil, err
	}
	to, err := r.engine.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
	if err != nil {
		return nil, err
	}
	return &stream{Conn: to.Conn, from: to.Reader}, nil
}

// stream is an exec's standard input and output as one connection. What comes
// out is in frames: a byte that says of which stream, three of nothing and the
// length, big-endian (Docker Engine API, "Attach to a container"). It has no end
// in one direction alone.
type stream struct {
	net.Conn
	from *bufio.Reader
	left uint32          // of the frame that is being read
	said strings.Builder // by standard error
}

// The streams of frames, and how long a header is.
const (
	streamOut    = 1
	streamErr    = 2
	streamHeader = 8
	// saidMost is how much of standard error is kept.
	saidMost = 1 << 10
)

// Read implements [net.Conn]. The end says what the relay said.
func (s *stream) Read(p []byte) (int, error) {
	for s.left == 0 {
		if err := s.next(); err != nil {
			if err == io.EOF && s.said.Len() > 0 {
				err = fmt.Errorf("relay: %s", strings.TrimSpace(s.said.String()))
			}
			return 0, err
		}
	}
	n, err := s.from.Read(p[:min(len(p), int(s.left))])
	s.left -= uint32(n)
	return n, within(err, s.left > 0)
}

// within makes an end of what ends too early.
func within(err error, early bool) error {
	if err == io.EOF && early {
		return io.ErrUnexpectedEOF
	}
	return err
}

// next reads the header of a frame of standard output, and all of one of
// standard error.
func (s *stream) next() error {
	header, err := s.from.Peek(streamHeader)
	if err != nil {
		return within(err, len(header) > 0)
	}
	which, length := header[0], binary.BigEndian.Uint32(header[4:])
	s.from.Discard(streamHeader)
	switch which {
	case streamOut:
		s.left = length
		return nil
	case streamErr:
		keep := min(int64(length), int64(saidMost-s.said.Len()))
		if _, err := io.CopyN(&s.said, s.from, keep); err != nil {
			return within(err, true)
		}
		_, err := io.CopyN(io.Discard, s.from, int64(length)-keep)
		return within(err, true)
	}
	return fmt.Errorf("a frame of stream %d", which)
}
