package rpc

import (
	"strconv"

	"github.com/controld/controld/sandbox"
)

// Request is one call or notification, decoded. It refers to nothing of the
// line it came in.
type Request struct {
	// ID is the id as it was written, nil for a notification and where the
	// answer must say null.
	ID []byte
	// Notify is true for a notification.
	Notify bool
	// Method is one of the protocol's, or empty with Err set.
	Method string
	// Params are what could be decoded, also with Err set; nil for an
	// unknown method.
	Params Params
	// Err is what is wrong with the request: the answer to it.
	Err *sandbox.Error
	// Size is the length of its text in bytes.
	Size int
}

// ParseLine decodes a line. A line that is no JSON is an error of kind
// parse_error, an empty batch or one of more than maxBatch calls of kind
// invalid_request; both are answered with id null. Without keys the fields of
// that capability are unknown.
func ParseLine(line []byte, maxBatch int, keys bool) (requests []*Request, batch bool, fault *sandbox.Error) {
	d := decoder{data: line, keyless: !keys}
	if d.peek() != '[' {
		r := d.request()
		d.finish()
		if d.broken != "" {
			return nil, false, d.fault("")
		}
		return []*Request{r}, false, nil
	}
	requests, n := d.batch(maxBatch)
	d.finish()
	switch {
	case d.broken != "":
		return nil, true, d.fault("")
	case n == 0:
		return nil, true, invalidRequest("an empty batch")
	case n > maxBatch:
		e := invalidRequest("a batch of more than " + strconv.Itoa(maxBatch) + " calls")
		e.Limit = sandbox.Some(int64(maxBatch))
		return nil, true, e
	}
	return requests, true, nil
}

func invalidRequest(what string) *sandbox.Error {
	return &sandbox.Error{Kind: sandbox.KindInvalidRequest, Message: what}
}

// batch reads an array of requests; those beyond most are counted, not kept.
func (d *decoder) batch(most int) (requests []*Request, n int) {
	d.array(func() {
		if n++; n > most {
			requests = nil
			d.skip()
			return
		}
		requests = append(requests, d.request())
	})
	return requests, n
}

// envelope is what is known of a request while it is read.
type envelope struct {
	version, method, id, params bool
	wrong                       string
	idTwice                     bool
	rawParams                   []byte // came before the method
	paramsDepth                 int
}

// request reads one request object.
func (d *decoder) request() *Request {
	r := new(Request)
	start := d.pos
	d.bad, d.badField = "", ""
	var env envelope
	if d.peek() != '{' {
		d.skip()
		env.wrong = "no request object"
	} else {
		o := object{}
		for d.broken == "" && d.nextName(&o) {
			t := d.scanString()
			if d.broken == "" && d.expect(':') {
				d.envelopeField(r, &env, t)
			}
		}
	}
	r.Size = d.pos - start
	d.settle(r, &env)
	return r
}

func (d *decoder) envelopeField(r *Request, env *envelope, t stringToken) {
	switch {
	case t.is("id"):
		env.twice(&env.id, "id")
		raw, ok := d.id()
		switch {
		case !ok:
			env.fault("id must be a string, a number or null")
		case len(raw) > MaxIDBytes:
			env.fault("id is too long")
		default:
			r.ID = append([]byte(nil), raw...)
		}
	case t.is("method"):
		env.twice(&env.method, "method")
		d.method(r, env)
	case t.is("jsonrpc"):
		env.twice(&env.version, "jsonrpc")
		if d.peek() != '"' {
			d.skip()
			env.fault("jsonrpc must be \"2.0\"")
		} else if v := d.scanString(); !v.is("2.0") {
			env.fault("jsonrpc must be \"2.0\"")
		}
	case t.is("params"):
		env.twice(&env.params, "params")
		d.params(r, env)
	default:
		d.skip()
	}
}

func (env *envelope) fault(what string) {
	if env.wrong == "" {
		env.wrong = what
	}
}

func (env *envelope) twice(seen *bool, name string) {
	if *seen {
		env.fault(name + " comes twice")
		env.idTwice = env.idTwice || name == "id"
	}
	*seen = true
}

// id reads an id and returns its text.
func (d *decoder) id() ([]byte, bool) {
	c := d.peek()
	raw := d.skip()
	ok := c == '"' || c == 'n' || c == '-' || '0' <= c && c <= '9'
	return raw, ok && raw != nil
}

func (d *decoder) method(r *Request, env *envelope) {
	if d.peek() != '"' {
		d.skip()
		env.fault("method must be a string")
		return
	}
	t := d.scanString()
	if d.broken != "" {
		return
	}
	for _, name := range methods {
		if t.is(name) {
			r.Method, r.Params = name, newParams(name)
			return
		}
	}
	r.Method = shorten(t.text())
	r.Err = &sandbox.Error{Kind: sandbox.KindUnknownMethod, Op: r.Method}
}

// params decodes the parameters, or keeps their text until the method came.
func (d *decoder) params(r *Request, env *envelope) {
	switch {
	case r.Params != nil && env.wrong == "":
		d.field = ""
		r.Params.decode(d)
	case env.method:
		d.skip()
	default:
		env.rawParams, env.paramsDepth = d.skip(), d.depth
	}
}

// settle judges a request that was read to its end.
func (d *decoder) settle(r *Request, env *envelope) {
	if d.broken != "" {
		return
	}
	if env.wrong == "" && !env.version {
		env.wrong = "jsonrpc is missing"
	}
	if env.wrong == "" && !env.method {
		env.wrong = "method is missing"
	}
	if env.idTwice {
		r.ID = nil
	}
	if env.wrong != "" {
		r.Err, r.Method, r.Params = invalidRequest(env.wrong), "", nil
		return
	}
	r.Notify = !env.id
	if r.Err != nil {
		return
	}
	late := decoder{data: env.rawParams, depth: env.paramsDepth, keyless: d.keyless}
	switch {
	case env.rawParams != nil:
		r.Params.decode(&late)
		r.Err = late.fault(r.Method)
	case !env.params:
		late.data = []byte("{}")
		r.Params.decode(&late)
		r.Err = late.fault(r.Method)
	default:
		r.Err = d.fault(r.Method)
	}
}
