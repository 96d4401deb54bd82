package rpc

import "github.com/controld/controld/sandbox"

// TransferParams are those of transfer_result and transfer_abort.
type TransferParams struct {
	// ID is the transfer's.
	ID string
}

var transferFields = []string{"id", "bytes", "sha256"}

func (p *TransferParams) decode(d *decoder) {
	o := object{fields: transferFields[:1], strict: true}
	for {
		if _, ok := d.next(&o); !ok {
			break
		}
		p.ID = d.str()
	}
	d.require(&o, "id")
}

func (p *TransferParams) encode(e encoder) {
	e.raw(`{"id":`)
	e.str(p.ID)
	e.raw("}")
}

// CommitParams are those of transfer_commit.
type CommitParams struct {
	ID     string
	Commit sandbox.Commit
}

func (p *CommitParams) decode(d *decoder) {
	o := object{fields: transferFields, strict: true}
	for {
		field, ok := d.next(&o)
		if !ok {
			break
		}
		switch field {
		case "id":
			p.ID = d.str()
		case "bytes":
			p.Commit.Bytes = d.size()
		case "sha256":
			if p.Commit.SHA256 = d.str(); !isSHA256(p.Commit.SHA256) {
				d.mismatch("must be 64 lower-case hex digits")
			}
		}
	}
	d.require(&o, "id")
	d.require(&o, "bytes")
}

func isSHA256(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) == 64
}

func (p *CommitParams) encode(e encoder) {
	e.raw(`{"id":`)
	e.str(p.ID)
	e.raw(`,"bytes":`)
	e.integer(p.Commit.Bytes)
	e.strField("sha256", p.Commit.SHA256)
	e.raw("}")
}
