package dataport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/controld/controld/sandbox"
)

// The preamble of a data connection: magic, token, newline.
const (
	magicData       = "CTRLD1 "
	magicDescriptor = "CTRLF1 "
	tokenLength     = 43
	preambleLength  = len(magicData) + tokenLength + 1
)

// Welcome is what the server says to a token that it took.
const Welcome = "OK\n"

// Handler owns a data connection after its token was taken, with the deadline
// of the preamble still set. It says [Welcome] first, which may go together
// with the transfer's first bytes, and closes the connection before it returns.
type Handler interface {
	ServeData(ctx context.Context, conn net.Conn)
}

// Claim takes a token, once. The kind of its error is said to the client.
type Claim func(token string) (Handler, error)

// Claims take the tokens that are presented.
type Claims struct {
	// Bytes takes those that ask for a transfer's bytes.
	Bytes Claim
	// File takes those that ask for its file, on Unix sockets; its handler
	// says [PassFile] and no [Welcome]. nil refuses them all. An error of
	// [sandbox.KindUnsupported] leaves the token good.
	File Claim
}

// Serve reads the preamble of conn, claims its token and hands the connection
// to the transfer's handler. It returns when the connection is closed. conn
// must yield the preamble's first byte; the caller has set the deadline for
// the whole of it, which ends with the preamble. Descriptors that come with it
// are closed by the kernel: nothing here asks for them.
func Serve(ctx context.Context, conn net.Conn, claims Claims) {
	magic, token, err := readPreamble(conn)
	if err != nil {
		conn.Close()
		return
	}
	claim := claims.Bytes
	if magic == magicDescriptor {
		claim = claims.File
		if _, local := conn.(*net.UnixConn); !local || claim == nil {
			refuse(conn, sandbox.KindUnsupported)
			return
		}
	}
	handler, err := claim(token)
	if err != nil {
		refuse(conn, wireKind(err))
		return
	}
	handler.ServeData(ctx, conn)
}

// readPreamble reads exactly one preamble; what follows it is payload.
func readPreamble(conn net.Conn) (magic, token string, err error) {
	var buf [preambleLength]byte
	if _, err := io.ReadFull(conn, buf[:]); err != nil {
		return "", "", err
	}
	return ParsePreamble(buf[:])
}

// ParsePreamble checks the 51 bytes of a preamble and returns its magic
// ("CTRLD1 " or "CTRLF1 ") and token. A token that none can be is still one
// that is unknown; only white space and control bytes are no token at all.
func ParsePreamble(buf []byte) (magic, token string, err error) {
	if len(buf) != preambleLength || buf[preambleLength-1] != '\n' {
		return "", "", errors.New("malformed preamble")
	}
	magic = string(buf[:len(magicData)])
	if magic != magicData && magic != magicDescriptor {
		return "", "", errors.New("malformed preamble")
	}
	token = string(buf[len(magicData) : preambleLength-1])
	for i := range len(token) {
		if token[i] <= ' ' || token[i] == 0x7f {
			return "", "", errors.New("malformed preamble")
		}
	}
	return magic, token, nil
}

// wireKind limits what a stranger is told to the kinds of the protocol.
func wireKind(err error) sandbox.Kind {
	switch k := sandbox.KindOf(err); k {
	case sandbox.KindResourceExhausted, sandbox.KindUnavailable, sandbox.KindUnsupported:
		return k
	}
	return sandbox.KindTokenInvalid
}

func refuse(conn net.Conn, kind sandbox.Kind) {
	fmt.Fprintf(conn, "ERR %s\n", kind)
	CloseLinger(conn)
}

// Open dials the endpoints in order, presents the token and returns the
// connection once the server said OK. said, which may be nil, is called with
// the connection while the token is on its way: what it does costs no time. A
// refusal is an error of the kind that the server named, a connection that
// ended without an answer [sandbox.KindConnectionLost], one that cannot be made
// [sandbox.KindUnavailable]. ctx bounds the opening alone.
func Open(ctx context.Context, token string, dials []func(context.Context) (net.Conn, error), said func(net.Conn)) (net.Conn, error) {
	if len(token) != tokenLength {
		return nil, noToken()
	}
	var first error
	for _, dial := range dials {
		conn, err := dial(ctx)
		if err == nil {
			return present(ctx, conn, magicData+token+"\n", said, readWelcome)
		}
		if first == nil {
			first = err
		}
	}
	if ctx.Err() != nil {
		return nil, sandbox.Cancelled(ctx, opOpen, "")
	}
	if first == nil {
		first = errors.New("no endpoint")
	}
	return nil, &sandbox.Error{Kind: sandbox.KindUnavailable, Op: opOpen, Outcome: sandbox.OutcomeNone,
		Reason: "unreachable", Message: first.Error(), Err: first}
}

const opOpen = "open data connection"

// noToken is the error of a token that is none: what it would be written into
// is no preamble.
func noToken() error {
	return &sandbox.Error{Kind: sandbox.KindInternal, Op: opOpen, Outcome: sandbox.OutcomeNone, Message: "the server gave a token that is none"}
}

// present says the preamble on a new connection and has answer read what the
// server says to it.
func present(ctx context.Context, conn net.Conn, preamble string, said func(net.Conn), answer func(net.Conn) error) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	_, err := io.WriteString(conn, preamble)
	if err == nil {
		if said != nil {
			said(conn)
		}
		err = answer(conn)
	}
	if stop() && err == nil {
		return conn, nil
	}
	conn.Close()
	var e *sandbox.Error
	switch {
	case ctx.Err() != nil:
		return nil, sandbox.Cancelled(ctx, opOpen, "")
	case errors.As(err, &e):
		return nil, err
	}
	return nil, &sandbox.Error{Kind: sandbox.KindConnectionLost, Op: opOpen, Outcome: sandbox.OutcomeNone,
		Message: err.Error(), Err: err}
}

// readWelcome reads "OK\n" or "ERR KIND\n" and not a byte more.
func readWelcome(conn net.Conn) error {
	var head [3]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	if string(head[:]) == Welcome {
		return nil
	}
	return readRefusal(conn, string(head[:]))
}

// readRefusal reads what is left of an "ERR KIND\n" that begins with head.
func readRefusal(conn net.Conn, head string) error {
	rest, err := readLine(conn, 64)
	if err != nil {
		return err
	}
	kind, ok := strings.CutPrefix(head+rest, "ERR ")
	if !ok {
		return errors.New("the data port does not speak this protocol")
	}
	return &sandbox.Error{Kind: sandbox.Kind(kind), Op: opOpen, Outcome: sandbox.OutcomeNone}
}
