package rpc

import "github.com/controld/controld/sandbox"

// NewResult returns the answer to the request with that id. The message
// refers to the contents of r until it is released.
func NewResult(id []byte, r Result) *Message {
	e := begin(id)
	e.raw(`,"result":`)
	r.encode(e)
	e.raw("}")
	return e.m
}

// NewError returns the answer to a request that failed: id is nil where it
// must be null, op and path stand in for what err does not name.
func NewError(id []byte, op, path string, err error) *Message {
	e := begin(id)
	e.raw(`,"error":`)
	e.error(wireError(op, path, err))
	e.raw("}")
	return e.m
}

func begin(id []byte) encoder {
	e := encoder{newMessage()}
	e.raw(`{"jsonrpc":"2.0","id":`)
	if id == nil {
		e.raw("null")
	} else {
		e.bytes(id)
	}
	return e
}

// newCall returns a request; a notification when id is nil.
func newCall(id []byte, method string, p Params) *Message {
	e := encoder{newMessage()}
	e.raw(`{"jsonrpc":"2.0",`)
	if id != nil {
		e.raw(`"id":`)
		e.bytes(id)
		e.raw(",")
	}
	e.raw(`"method":`)
	e.str(method)
	if p != nil {
		e.raw(`,"params":`)
		p.encode(e)
	}
	e.raw("}")
	return e.m
}

// answer is a reply as a client reads it.
type answer struct {
	id     []byte // as written, part of the line
	result bool
	err    *sandbox.Error
	fault  *sandbox.Error // the reply itself is none
}

// parseAnswer decodes a reply in one pass. claim is called once the id is
// known and returns where the result goes, nil when nobody waits for it.
func parseAnswer(line []byte, claim func(id []byte) Result) answer {
	d := decoder{data: line}
	var a answer
	var into Result
	var early []byte
	o := object{fields: answerFields}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "jsonrpc":
			d.str()
		case "id":
			a.id, _ = d.id()
			into = claim(a.id)
		case "error":
			if !d.null() {
				a.err = d.error()
			}
		case "result":
			a.result = true
			if into == nil {
				early = d.skip()
			} else {
				d.field = ""
				into.decode(&d)
			}
		}
	}
	d.finish()
	if early != nil && into != nil && d.broken == "" {
		late := decoder{data: early, depth: 1}
		into.decode(&late)
		d.bad, d.badField = late.bad, late.badField
	}
	a.fault = d.fault("")
	return a
}

var answerFields = []string{"jsonrpc", "id", "result", "error"}
