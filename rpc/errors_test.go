package rpc

import (
	"encoding/json"
	"errors"
	"io/fs"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/controld/controld/sandbox"
)

// through sends an error to the other side.
func through(t *testing.T, op, path string, err error) *sandbox.Error {
	t.Helper()
	m := NewError([]byte("1"), op, path, err)
	defer m.release()
	if !json.Valid(m.buf) {
		t.Fatalf("no JSON: %s", m.buf)
	}
	a := parseAnswer(m.buf, func([]byte) Result { return nil })
	if a.err == nil || a.fault != nil {
		t.Fatalf("no error: %s", m.buf)
	}
	return a.err
}

func TestErrorsRoundTrip(t *testing.T) {
	for _, row := range kinds {
		reason := sandbox.ReasonDraining
		if row.kind == sandbox.KindOutcomeUnknown {
			reason = sandbox.ReasonRequestKey // without it the kind is the client's own
		}
		want := &sandbox.Error{
			Kind: row.kind, Op: "stat", Path: "a\xffb", Errno: "EIO", Outcome: sandbox.OutcomeNone, Reason: reason, Message: "so it is",
			Limit: sandbox.Some[int64](1), Bytes: sandbox.Some[int64](2), Expected: sandbox.Some[int64](3),
			RetryAfter: 1500 * time.Millisecond, Protocols: []int{1, 2},
		}
		if got := through(t, "x", "y", want); !reflect.DeepEqual(got, want) || got.Error() != want.Error() {
			t.Errorf("%s: got %+v, want %+v", row.kind, got, want)
		}
		bare := &sandbox.Error{Kind: row.kind, Op: "stat", Path: "p"}
		if row.kind == sandbox.KindOutcomeUnknown {
			bare.Reason = reason
		}
		got := through(t, "stat", "p", bare)
		if got.Kind != row.kind || got.Message != "" || got.Error() != bare.Error() {
			t.Errorf("%s: got %+v", row.kind, got)
		}
		needs := row.kind == sandbox.KindUnavailable || row.kind == sandbox.KindAborted || row.kind == sandbox.KindInternal ||
			row.kind == sandbox.KindOutcomeUnknown
		if (got.Outcome != "") != needs {
			t.Errorf("%s: outcome %q", row.kind, got.Outcome)
		}
	}
}

func TestErrorsIsOnTheFarSide(t *testing.T) {
	tests := []struct {
		err  error
		want []error
	}{
		{sandbox.FromErrno("open", "p", syscall.ENOENT), []error{fs.ErrNotExist, syscall.ENOENT}},
		{sandbox.FromErrno("open", "p", syscall.EEXIST), []error{fs.ErrExist, syscall.EEXIST}},
		{sandbox.FromErrno("open", "p", syscall.EPERM), []error{fs.ErrPermission, syscall.EPERM}},
		{sandbox.FromErrno("open", "p", syscall.ENOSPC), []error{syscall.ENOSPC}},
		{sandbox.FromErrno("open", "p", syscall.EDQUOT), []error{syscall.EDQUOT}},
		{syscall.ENOTEMPTY, []error{fs.ErrExist, syscall.ENOTEMPTY}},
	}
	for _, tt := range tests {
		got := through(t, "op", "p", tt.err)
		for _, want := range tt.want {
			if !errors.Is(got, want) {
				t.Errorf("%v: not %v", got, want)
			}
		}
	}
}

func TestForeignKinds(t *testing.T) {
	for _, tt := range []struct {
		text string
		want sandbox.Kind
	}{
		{`{"code":-32003,"message":"m","data":{"kind":"gone_for_good"}}`, sandbox.KindNotFound},
		{`{"code":-32004,"message":"m","data":{"kind":"x"}}`, sandbox.KindExists},
		{`{"code":-32009,"message":"m"}`, sandbox.KindResourceExhausted},
		{`{"code":-1,"message":"m","data":{"kind":"busy","more":[1]}}`, sandbox.KindBusy},
		{`{"code":-1,"message":"m","data":null}`, sandbox.KindInternal},
		{`{"code":-1,"message":"m","data":{"kind":"connection_lost"}}`, sandbox.KindInternal},
	} {
		d := decoder{data: []byte(tt.text)}
		if e := d.error(); e.Kind != tt.want || d.broken != "" {
			t.Errorf("%s: got %s", tt.text, e.Kind)
		}
	}
}

// TestProxiedKinds: a client's own kinds become the next hop's word.
func TestProxiedKinds(t *testing.T) {
	e := through(t, "stat", "p", &sandbox.Error{Kind: sandbox.KindConnectionLost, Outcome: sandbox.OutcomeNone})
	if e.Kind != sandbox.KindUnavailable || e.Reason != sandbox.ReasonLinkLost || e.Outcome != sandbox.OutcomeNone {
		t.Errorf("got %+v", e)
	}
	e = through(t, "stat", "p", &sandbox.Error{Kind: sandbox.KindOutcomeUnknown})
	if e.Kind != sandbox.KindUnavailable || e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("got %+v", e)
	}
	if e = through(t, "stat", "p", errors.New("plain")); e.Kind != sandbox.KindInternal || e.Outcome != sandbox.OutcomeUnknown {
		t.Errorf("got %+v", e)
	}
}
