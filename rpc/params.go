package rpc

import (
	"encoding/json"

	"github.com/controld/controld/sandbox"
)

// Params are the parameters of one method. The set is closed.
type Params interface {
	// decode reads the object, noting what is wrong in the decoder.
	decode(d *decoder)
	// encode writes the object.
	encode(e encoder)
}

// Result is the result of a method. The set is closed.
type Result interface {
	decode(d *decoder)
	encode(e encoder)
}

// newParams returns room for a method's parameters, nil for an unknown one.
func newParams(method string) Params {
	switch method {
	case MethodHello:
		return new(HelloParams)
	case MethodPing, MethodSandboxList:
		return new(Empty)
	case MethodCancel:
		return new(CancelParams)
	case MethodReadFile, MethodReadFileBuffer:
		return new(ReadParams)
	case MethodReadFileStream:
		return &ReadParams{stream: true}
	case MethodWriteFile:
		return new(WriteParams)
	case MethodWriteFileStream:
		return &WriteParams{stream: true}
	case MethodStat:
		return new(StatParams)
	case MethodReadDir:
		return new(ReadDirParams)
	case MethodExists:
		return new(ExistsParams)
	case MethodMkdir:
		return new(MkdirParams)
	case MethodRm:
		return new(RmParams)
	case MethodExec:
		return new(ExecParams)
	case MethodTransferResult, MethodTransferAbort:
		return new(TransferParams)
	case MethodTransferCommit:
		return new(CommitParams)
	case MethodSandboxInfo, MethodSandboxCreate, MethodSandboxPause, MethodSandboxResume:
		return new(SandboxParams)
	case MethodSandboxRemove:
		return new(SandboxRemoveParams)
	case MethodSandboxExtend:
		return new(SandboxExtendParams)
	}
	return nil
}

// DecodeParams decodes the parameters of a method, a JSON object. Its error
// is of kind parse_error, unknown_method or invalid_params.
func DecodeParams(method string, object []byte) (Params, error) {
	p := newParams(method)
	if p == nil {
		return nil, &sandbox.Error{Kind: sandbox.KindUnknownMethod, Op: shorten(method)}
	}
	d := decoder{data: object, depth: 1}
	p.decode(&d)
	d.finish()
	if err := d.fault(method); err != nil {
		return nil, err
	}
	return p, nil
}

// EncodeParams appends the JSON object of p to dst.
func EncodeParams(dst []byte, p Params) []byte { return encodeAlone(dst, p) }

// EncodeResult appends the JSON value of r to dst.
func EncodeResult(dst []byte, r Result) []byte { return encodeAlone(dst, r) }

func encodeAlone(dst []byte, v interface{ encode(encoder) }) []byte {
	m := newMessage()
	defer m.release()
	v.encode(encoder{m})
	piece := make([]byte, 0, 32<<10)
	for {
		var last bool
		piece, last = m.fill(piece[:0])
		dst = append(dst, piece...)
		if last {
			return dst
		}
	}
}

// DecodeResult decodes the JSON value of a result into r.
func DecodeResult(value []byte, r Result) error {
	d := decoder{data: value, depth: 1}
	r.decode(&d)
	d.finish()
	if err := d.fault(""); err != nil {
		return err
	}
	return nil
}

// fault returns what is wrong, nil when nothing is.
func (d *decoder) fault(method string) *sandbox.Error {
	switch {
	case d.broken != "":
		return &sandbox.Error{Kind: sandbox.KindParseError, Message: d.broken}
	case d.bad != "" && d.badField != "":
		return &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: method, Message: d.badField + " " + d.bad}
	case d.bad != "":
		return &sandbox.Error{Kind: sandbox.KindInvalidParams, Op: method, Message: "params " + d.bad}
	}
	return nil
}

// Empty are params or a result without fields.
type Empty struct{}

func (*Empty) decode(d *decoder) {
	o := object{strict: true}
	d.field = ""
	d.next(&o)
}

func (*Empty) encode(e encoder) { e.raw("{}") }

// CancelParams are those of $/cancelRequest.
type CancelParams struct {
	// ID is the request's id as it was written.
	ID []byte
}

var cancelFields = []string{"id"}

func (p *CancelParams) decode(d *decoder) {
	o := object{fields: cancelFields, strict: true}
	for {
		if _, ok := d.next(&o); !ok {
			break
		}
		if raw, ok := d.id(); ok {
			p.ID = append([]byte(nil), raw...)
		} else {
			d.mismatch("must be a string, a number or null")
		}
	}
	d.require(&o, "id")
}

func (p *CancelParams) encode(e encoder) {
	e.raw("{")
	e.field("id")
	e.bytes(p.ID)
	e.raw("}")
}

// rawResult keeps a result's text, for callers with types of their own.
type rawResult struct{ text json.RawMessage }

func (r *rawResult) decode(d *decoder) { r.text = append(r.text[:0], d.skip()...) }

func (r *rawResult) encode(e encoder) { e.bytes(r.text) }

// rawParams are parameters that were encoded elsewhere.
type rawParams struct{ text json.RawMessage }

func (p *rawParams) decode(d *decoder) { p.text = append(p.text[:0], d.skip()...) }

func (p *rawParams) encode(e encoder) { e.bytes(p.text) }
