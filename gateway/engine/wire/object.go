package wire

import (
	"strconv"

	"turnlog.dev/gateway/engine"
	"turnlog.dev/schema/rawjson"
)

// Object builds one JSON object. Its methods are for requests: what is unset
// (nil, empty) is left out, so that the engine's default stands.
type Object struct{ b []byte }

// NewObject returns an empty object that appends to dst.
func NewObject(dst []byte) *Object { return &Object{append(dst, '{')} }

func (o *Object) key(key string) {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(rawjson.AppendText(o.b, key), ':')
}

// Raw adds JSON as it is.
func (o *Object) Raw(key string, raw []byte) {
	o.key(key)
	o.b = append(o.b, raw...)
}

// Text adds a string unless it is empty.
func (o *Object) Text(key, s string) {
	if s != "" {
		o.key(key)
		o.b = rawjson.AppendText(o.b, s)
	}
}

// Texts adds strings unless there are none.
func (o *Object) Texts(key string, list []string) {
	if len(list) == 0 {
		return
	}
	o.key(key)
	for i, s := range list {
		o.b = rawjson.AppendText(append(o.b, "[,"[min(i, 1)]), s)
	}
	o.b = append(o.b, ']')
}

// IDs adds ids, also when there are none.
func (o *Object) IDs(key string, ids []uint32) {
	o.key(key)
	o.b = AppendIDs(o.b, ids)
}

// Int adds a number.
func (o *Object) Int(key string, n int64) {
	o.key(key)
	o.b = strconv.AppendInt(o.b, n, 10)
}

// Bool adds true or false.
func (o *Object) Bool(key string, v bool) {
	o.key(key)
	o.b = strconv.AppendBool(o.b, v)
}

// Float adds a number unless it is nil.
func (o *Object) Float(key string, f *float64) {
	if f != nil {
		o.key(key)
		o.b = strconv.AppendFloat(o.b, *f, 'g', -1, 64)
	}
}

// Object adds an object that f fills.
func (o *Object) Object(key string, f func(*Object)) {
	o.key(key)
	inner := NewObject(o.b)
	f(inner)
	o.b = inner.End()
}

// LogitBias adds biases as an object by the ids' digits, unless there are none.
func LogitBias(o *Object, list []engine.Bias) {
	if len(list) == 0 {
		return
	}
	o.Object("logit_bias", func(o *Object) {
		for _, b := range list {
			o.Float(strconv.FormatUint(uint64(b.ID), 10), &b.Value)
		}
	})
}

// End closes the object and returns what was built.
func (o *Object) End() []byte { return append(o.b, '}') }
