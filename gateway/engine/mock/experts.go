package mock

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// Experts is the shape of a mixture model: how many experts each layer chooses
// for a token. The zero value is a model without, or a server that was started
// without --enable-return-routed-experts: it sends none.
type Experts struct{ Layers, TopK int }

// SomeExperts is a small mixture model.
var SomeExperts = Experts{Layers: 4, TopK: 2}

// expertsPerLayer is how many there are to choose from.
const expertsPerLayer = 64

// Choose is what the layers choose for a token at a position: one number for
// each layer and place, all below 64.
func (e Experts) Choose(position int, id uint32) []byte {
	out := make([]byte, 0, e.Layers*e.TopK)
	for layer := range e.Layers {
		for place := range e.TopK {
			out = append(out, byte((position+int(id)+7*layer+place)%expertsPerLayer))
		}
	}
	return out
}

// routedRows are the choices for the sequence of prompt and answer from the
// position asked for on; the last token sampled has not been through the model.
// It is nil where none are sent.
func (a *answer) routedRows(e Experts) (rows []byte, n int) {
	if e == (Experts{}) || a.routed < 0 {
		return nil, 0
	}
	for at := a.routed; at < len(a.shown)+len(a.ids)-1; at++ {
		id := uint32(0)
		if at < len(a.shown) {
			id = a.shown[at]
		} else {
			id = a.ids[at-len(a.shown)]
		}
		rows, n = append(rows, e.Choose(at, id)...), n+1
	}
	if a.fault.Kind == LostRows && n > 0 {
		rows, n = rows[e.Layers*e.TopK:], n-1
	}
	return rows, n
}

// appendFlat writes the choices as sglang does: int32, without a shape.
func (a *answer) appendFlat(dst []byte, e Experts) []byte {
	rows, _ := a.routedRows(e)
	if rows == nil {
		return dst
	}
	flat := make([]byte, 0, 4*len(rows))
	for _, b := range rows {
		flat = binary.LittleEndian.AppendUint32(flat, uint32(b))
	}
	return append(base64.StdEncoding.AppendEncode(append(dst, `,"routed_experts":"`...), flat), '"')
}

// appendFile writes the choices as vLLM does: a file of numpy's, uint8.
func (a *answer) appendFile(dst []byte, e Experts) []byte {
	rows, n := a.routedRows(e)
	if rows == nil {
		return dst
	}
	header := fmt.Sprintf("{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d, %d), }", n, e.Layers, e.TopK)
	header += strings.Repeat(" ", 63-(10+len(header))%64) + "\n"
	file := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(header)))
	file = append(append(file, header...), rows...)
	return append(base64.StdEncoding.AppendEncode(append(dst, `,"routed_experts":"`...), file), '"')
}
