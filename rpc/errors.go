package rpc

import (
	"strconv"
	"strings"

	"github.com/controld/controld/sandbox"
)

// The codes of the protocol's own errors.
const (
	codeParse           = -32700
	codeRequest         = -32600
	codeMethod          = -32601
	codeParams          = -32602
	codeInternal        = -32603
	codeUnauthenticated = -32001
	codePermission      = -32002
	codeNotFound        = -32003
	codeState           = -32004
	codeSpace           = -32005
	codeConflict        = -32006
	codeToken           = -32007
	codeTransfer        = -32008
	codeAvailability    = -32009
	codeUnsupported     = -32010
	codeCancelled       = -32800
)

// kinds pairs each kind that travels with its code. The first kind of a code
// is what an unknown kind with that code counts as.
var kinds = []struct {
	kind sandbox.Kind
	code int64
}{
	{sandbox.KindParseError, codeParse},
	{sandbox.KindInvalidRequest, codeRequest},
	{sandbox.KindMessageTooLarge, codeRequest},
	{sandbox.KindUnknownMethod, codeMethod},
	{sandbox.KindInvalidParams, codeParams},
	{sandbox.KindUnauthenticated, codeUnauthenticated},
	{sandbox.KindPermission, codePermission},
	{sandbox.KindReadOnly, codePermission},
	{sandbox.KindNotFound, codeNotFound},
	{sandbox.KindExists, codeState},
	{sandbox.KindNotEmpty, codeState},
	{sandbox.KindIsDirectory, codeState},
	{sandbox.KindNotDirectory, codeState},
	{sandbox.KindNotRegular, codeState},
	{sandbox.KindLoop, codeState},
	{sandbox.KindNameTooLong, codeState},
	{sandbox.KindCrossDevice, codeState},
	{sandbox.KindBusy, codeState},
	{sandbox.KindTooLarge, codeSpace},
	{sandbox.KindNoSpace, codeSpace},
	{sandbox.KindConflict, codeConflict},
	{sandbox.KindChanged, codeConflict},
	{sandbox.KindTokenInvalid, codeToken},
	{sandbox.KindTruncated, codeTransfer},
	{sandbox.KindAborted, codeTransfer},
	{sandbox.KindStalled, codeTransfer},
	{sandbox.KindCorrupt, codeTransfer},
	{sandbox.KindResourceExhausted, codeAvailability},
	{sandbox.KindUnavailable, codeAvailability},
	{sandbox.KindUnsupported, codeUnsupported},
	{sandbox.KindArgumentTooLong, codeUnsupported},
	{sandbox.KindStartFailed, codeUnsupported},
	{sandbox.KindCancelled, codeCancelled},
	{sandbox.KindInternal, codeInternal},
	{sandbox.KindOutcomeUnknown, codeInternal}, // of a key alone, see wireError
}

func codeOf(kind sandbox.Kind) int64 {
	for _, row := range kinds {
		if row.kind == kind {
			return row.code
		}
	}
	return codeInternal
}

// kindOf returns a peer's kind, or what its code stands for when this version
// does not know it.
func kindOf(kind sandbox.Kind, code int64) sandbox.Kind {
	main := sandbox.KindInternal
	for i := len(kinds) - 1; i >= 0; i-- {
		if kinds[i].kind == kind {
			return kind
		}
		if kinds[i].code == code {
			main = kinds[i].kind
		}
	}
	return main
}

// wireError returns err as it travels: with a kind of the table, and an
// outcome where one is due.
func wireError(op, path string, err error) *sandbox.Error {
	e := *sandbox.AsError(op, path, err)
	if e.Op == "" {
		e.Op = op
	}
	if e.Path == "" && e.Op == op {
		e.Path = path
	}
	switch {
	case e.Kind == sandbox.KindOutcomeUnknown && e.Reason == sandbox.ReasonRequestKey:
	case e.Kind == sandbox.KindConnectionLost, e.Kind == sandbox.KindOutcomeUnknown:
		// A client's own kinds, from the next hop of a proxy.
		e.Kind, e.Reason = sandbox.KindUnavailable, sandbox.ReasonLinkLost
	case codeOf(e.Kind) == codeInternal:
		e.Kind = sandbox.KindInternal
	}
	if e.Outcome == "" {
		switch e.Kind {
		case sandbox.KindAborted:
			e.Outcome = sandbox.OutcomeNone
		case sandbox.KindUnavailable, sandbox.KindInternal, sandbox.KindOutcomeUnknown:
			e.Outcome = sandbox.OutcomeUnknown
		}
	}
	return &e
}

// error writes the error object of e, which wireError returned.
func (e encoder) error(err *sandbox.Error) {
	e.raw(`{"code":`)
	e.integer(codeOf(err.Kind))
	e.raw(`,"message":`)
	e.str(err.Error())
	e.raw(`,"data":{"kind":`)
	e.str(string(err.Kind))
	e.strField("op", err.Op)
	e.nameField("path", err.Path)
	e.strField("errno", err.Errno)
	e.strField("outcome", string(err.Outcome))
	e.optionalField("limit", err.Limit)
	e.optionalField("bytes", err.Bytes)
	e.optionalField("expected", err.Expected)
	e.strField("reason", err.Reason)
	if err.RetryAfter > 0 {
		e.field("retry_after_s")
		e.seconds(err.RetryAfter)
	}
	if len(err.Protocols) > 0 {
		e.field("protocols")
		sep := "["
		for _, p := range err.Protocols {
			e.raw(sep + strconv.Itoa(p))
			sep = ","
		}
		e.raw("]")
	}
	e.raw("}}")
}

// An error is repeated to others, and written into logs: what a peer says in it
// is bounded.
const (
	maxErrorText = 4 << 10
	maxProtocols = 16
)

var errorFields = []string{"code", "message", "data"}

// error reads an error object.
func (d *decoder) error() *sandbox.Error {
	e := new(sandbox.Error)
	o := object{fields: errorFields}
	var code int64
	var message string
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "code":
			code = d.integer(-maxInt+1, maxInt-1)
		case "message":
			message = d.str()
		case "data":
			if !d.null() {
				d.errorData(e)
			}
		}
	}
	e.Kind = kindOf(e.Kind, code)
	e.Message = shortenTo(reasonOf(e, message), maxErrorText)
	return e
}

var errorDataFields = []string{
	"kind", "op", "path", "errno", "outcome", "limit", "bytes", "expected", "reason", "retry_after_s", "protocols",
}

func (d *decoder) errorData(e *sandbox.Error) {
	o := object{fields: errorDataFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			return
		}
		switch field {
		case "kind":
			e.Kind = sandbox.Kind(d.word())
		case "op":
			e.Op = d.word()
		case "path":
			e.Path = d.name()
		case "errno":
			e.Errno = d.word()
		case "outcome":
			e.Outcome = sandbox.Outcome(d.word())
		case "limit":
			e.Limit = sandbox.Some(d.size())
		case "bytes":
			e.Bytes = sandbox.Some(d.size())
		case "expected":
			e.Expected = sandbox.Some(d.size())
		case "reason":
			e.Reason = d.word()
		case "retry_after_s":
			e.RetryAfter = d.seconds(maxDuration)
		case "protocols":
			d.array(func() {
				if v := int(d.integer(0, 1<<31-1)); len(e.Protocols) < maxProtocols {
					e.Protocols = append(e.Protocols, v)
				}
			})
		}
	}
}

// reasonOf takes op, path and counts off a message, which sandbox.Error puts
// there again; it is empty when nothing but the kind's own words is left.
func reasonOf(e *sandbox.Error, message string) string {
	const mark = "\x00"
	frame := *e
	frame.Message = mark
	before, after, _ := strings.Cut(frame.Error(), mark)
	text := strings.TrimSuffix(strings.TrimPrefix(message, before), after)
	frame.Message = ""
	if text+after == frame.Text() {
		return ""
	}
	return text
}
