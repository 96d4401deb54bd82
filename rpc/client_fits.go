package rpc

import (
	"github.com/controld/controld/sandbox"
)

// done is a result that says nothing more; it is an object all the same.
type done struct{}

func (done) decode(d *decoder) {
	d.field = ""
	o := object{}
	d.next(&o)
}

func (done) encode(encoder) {}

// contradiction is the error of an answer that cannot be one to what was asked:
// of whoever gives it nothing is believed.
func contradiction(op, path, what string) error {
	return &sandbox.Error{Kind: sandbox.KindInternal, Op: op, Path: path, Outcome: sandbox.OutcomeUnknown, Message: "bad answer: " + what}
}

const tooMuch = "there is more of it than was asked for"

// fits tells whether the content is no longer than what was asked for.
func (r *ReadResult) fits(path string, opts sandbox.ReadOptions) error {
	n, most := r.Length, opts.Length
	if r.Transfer == nil {
		n = int64(len(r.File.Data))
		if opts.InlineMax.Known && n > opts.InlineMax.Value {
			return contradiction(MethodReadFile, path, tooMuch)
		}
	}
	if most.Known && n > most.Value {
		return contradiction(MethodReadFile, path, tooMuch)
	}
	return nil
}

// fits tells whether no more is to come than was asked for.
func (r *StreamResult) fits(path string, opts sandbox.ReadOptions) error {
	if r.Length.Known && opts.Length.Known && r.Length.Value > opts.Length.Value {
		return contradiction(MethodReadFileStream, path, tooMuch)
	}
	return nil
}

// fits tells whether the names are what was asked for, in their order.
func (r *ReadDirResult) fits(path string, opts sandbox.ReadDirOptions) error {
	names := r.Listing.Names
	if opts.Limit > 0 && len(names) > opts.Limit {
		return contradiction(MethodReadDir, path, tooMuch)
	}
	if len(names) == 0 && r.Listing.More {
		return contradiction(MethodReadDir, path, "more names than none")
	}
	after := opts.After
	for _, name := range names {
		if name <= after {
			return contradiction(MethodReadDir, path, "names out of order")
		}
		after = name
	}
	return nil
}

// fits tells whether the output is no longer than was asked for.
func (r *ExecResult) fits(opts sandbox.ExecOptions) error {
	longest := max(len(r.Shell.Stdout), len(r.Shell.Stderr))
	if opts.MaxOutputBytes.Known && int64(longest) > opts.MaxOutputBytes.Value {
		return contradiction(MethodExec, "", tooMuch)
	}
	return nil
}
