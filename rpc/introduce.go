package rpc

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/controld/controld/sandbox"
)

// Introduce says hello on conn and reads the answer and not a byte more: what
// follows it is another protocol's, that of a multiplexer. It leaves conn
// open; ctx bounds the exchange.
func Introduce(ctx context.Context, conn net.Conn, p HelloParams) (HelloResult, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	result, err := introduce(conn, p)
	if !stop() {
		return HelloResult{}, sandbox.Cancelled(ctx, MethodHello, "")
	}
	return result, err
}

func introduce(conn net.Conn, p HelloParams) (HelloResult, error) {
	msg := newCall([]byte("1"), MethodHello, &p)
	line, _ := msg.whole()
	_, err := conn.Write(append(line[:len(line):len(line)], '\n'))
	msg.release()
	var answer []byte
	if err == nil {
		answer, err = readBytewise(conn)
	}
	if err != nil {
		return HelloResult{}, &sandbox.Error{Kind: sandbox.KindConnectionLost, Op: MethodHello,
			Outcome: sandbox.OutcomeNone, Message: "connection lost: " + err.Error(), Err: err}
	}
	var result HelloResult
	a := parseAnswer(answer, func([]byte) Result { return &result })
	switch {
	case a.fault != nil:
		return HelloResult{}, a.fault
	case a.err != nil:
		return HelloResult{}, a.err
	}
	return result, nil
}

// maxHelloAnswer bounds the answer to a hello.
const maxHelloAnswer = 64 << 10

func readBytewise(r io.Reader) ([]byte, error) {
	var line []byte
	var b [1]byte
	for len(line) < maxHelloAnswer {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, err
		}
		if b[0] == '\n' {
			return line, nil
		}
		line = append(line, b[0])
	}
	return nil, ErrLineTooLong
}
