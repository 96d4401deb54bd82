package peer

import (
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
)

// A bare connection starts with one header: direction, size, length of the
// path, path. A download is size raw bytes; an upload is answered with one
// byte when all of them are in the file. For commands see
// execBare, for short streams mintBare.
const (
	down byte = 'D'
	up   byte = 'U'
	run  byte = 'R'
	done byte = '.'
)

func writeHeader(w io.Writer, dir byte, path string, size int64) error {
	b := []byte{dir}
	b = binary.BigEndian.AppendUint64(b, uint64(size))
	b = binary.BigEndian.AppendUint16(b, uint16(len(path)))
	_, err := w.Write(append(b, path...))
	return err
}

func readHeader(r io.Reader) (dir byte, path string, size int64, err error) {
	var b [11]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return 0, "", 0, err
	}
	name := make([]byte, binary.BigEndian.Uint16(b[9:]))
	_, err = io.ReadFull(r, name)
	return b[0], string(name), int64(binary.BigEndian.Uint64(b[1:])), err
}

func serveBare(l net.Listener) error {
	m := &minted{all: map[string]*pending{}}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			if err := answerBare(conn, m); err != nil {
				fmt.Fprintln(os.Stderr, "bare:", err)
			}
		}()
	}
}

func answerBare(conn net.Conn, m *minted) error {
	dir, path, size, err := readHeader(conn)
	if err != nil {
		return err
	}
	switch dir {
	case run:
		return execBare(conn)
	case mint:
		return m.mintBare(conn, path, size)
	case shared:
		return m.serveShared(conn)
	case claim:
		return m.claimBare(conn, path)
	case up:
		if err := receive(conn, path, size, Splice); err != nil {
			return err
		}
		_, err = conn.Write([]byte{done})
		return err
	}
	return sendBare(conn, path, size)
}

func sendBare(conn net.Conn, path string, size int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := send(conn, f, size); err != nil {
		return err
	}
	conn.(interface{ CloseWrite() error }).CloseWrite()
	conn.Read(make([]byte, 1)) // until the client has it all
	return nil
}

// receive brings size bytes into a new file.
func receive(conn net.Conn, path string, size int64, way Way) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := way(conn, f, size); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// dialBare dials a bare server, one of BareTLS where there is something to trust.
func dialBare(addr string, trust *tls.Config) (net.Conn, error) {
	if trust != nil {
		return tls.Dial("tcp", addr, trust)
	}
	return net.Dial("tcp", addr)
}

// BareOpen asks for size bytes of a file; they are what the connection yields.
// trust is that of a client of BareTLS, and nil in the clear.
func BareOpen(addr string, trust *tls.Config, path string, size int64) (net.Conn, error) {
	conn, err := dialBare(addr, trust)
	if err != nil {
		return nil, err
	}
	if err := writeHeader(conn, down, path, size); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// BareRead reads the first bytes of a file into buf, over a new connection.
func BareRead(addr, path string, buf []byte) (int, error) {
	conn, err := BareOpen(addr, nil, path, int64(len(buf)))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return io.ReadFull(conn, buf)
}

// BareDown copies a file of the server to a new file, by one of the ways of
// this package.
func BareDown(addr string, trust *tls.Config, path, local string, size int64, way Way) error {
	conn, err := BareOpen(addr, trust, path, size)
	if err != nil {
		return err
	}
	defer conn.Close()
	return receive(conn, local, size, way)
}

// BareUp copies a file to a new file of the server.
func BareUp(addr string, trust *tls.Config, path, local string, size int64) error {
	f, err := os.Open(local)
	if err != nil {
		return err
	}
	defer f.Close()
	conn, err := dialBare(addr, trust)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := writeHeader(conn, up, path, size); err != nil {
		return err
	}
	if err := send(conn, f, size); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}
