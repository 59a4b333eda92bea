package parquet

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Digest is what a file's rows come to, column by column.
type Digest struct {
	Rows int64
	// RowGroups are the numbers of rows of the row groups.
	RowGroups []int64
	Columns   []ColumnDigest
}

// ColumnDigest sums one leaf column so that another order, length or value of
// any element gives another sum.
type ColumnDigest struct {
	Path string
	// Values sums the elements, each times an odd weight that grows.
	Values uint64
	// Shape sums the rows' numbers of elements and whether they are null, each
	// times an odd weight that grows.
	Shape uint64
	// Count is the number of elements that are not null.
	Count uint64

	rows uint64
}

func (c *ColumnDigest) value(bits uint64) {
	c.Values += (2*c.Count + 1) * bits
	c.Count++
}

// addInts does for each element of a list what value does. Lists may have an
// element for every token: these loops keep the sum in a register.
func addInts[T int8 | int32](c *ColumnDigest, list []T) {
	sum, weight := c.Values, 2*c.Count+1
	for _, x := range list {
		sum += weight * uint64(uint32(x))
		weight += 2
	}
	c.Values, c.Count = sum, c.Count+uint64(len(list))
}

func addFloats(c *ColumnDigest, list []float32) {
	sum, weight := c.Values, 2*c.Count+1
	for _, x := range list {
		sum += weight * uint64(math.Float32bits(x))
		weight += 2
	}
	c.Values, c.Count = sum, c.Count+uint64(len(list))
}

func addLongs(c *ColumnDigest, list []int64) {
	for _, x := range list {
		c.value(uint64(x))
	}
}

// row ends a row whose elements began at the given Count.
func (c *ColumnDigest) row(began uint64, null bool) {
	shape := 2 * (c.Count - began)
	if null {
		shape++
	}
	c.Shape += (2*c.rows + 1) * shape
	c.rows++
}

func textBits(b []byte) uint64 {
	sum := sha256.Sum256(b)
	return binary.LittleEndian.Uint64(sum[:])
}

// digester sums what the writer was given.
type digester struct {
	rows    int64
	columns []ColumnDigest
	began   []uint64 // the counts of one column's leaves before the row
}

func newDigester(schema *arrow.Schema) *digester {
	d := new(digester)
	for _, l := range leaves("", schema.Fields()) {
		d.columns = append(d.columns, ColumnDigest{Path: l.path})
	}
	return d
}

func (d *digester) sum() Digest { return Digest{Rows: d.rows, Columns: d.columns} }

func (d *digester) row(row reflect.Value, cols []column) {
	d.rows++
	at := 0
	for _, c := range cols {
		group := d.columns[at : at+c.leaves]
		at += c.leaves
		d.began = d.began[:0]
		for _, leaf := range group {
			d.began = append(d.began, leaf.Count)
		}
		v := row.Field(c.index)
		null := c.null && isNull(v)
		if !null {
			addValue(group, v)
		}
		for i := range group {
			group[i].row(d.began[i], null)
		}
	}
}

// addValue adds a value that is not null to the leaves that hold it.
func addValue(group []ColumnDigest, v reflect.Value) {
	c := &group[0]
	switch list := v.Interface().(type) {
	case []int32:
		addInts(c, list)
		return
	case []int8:
		addInts(c, list)
		return
	case []float32:
		addFloats(c, list)
		return
	case time.Time:
		c.value(uint64(list.UnixMicro()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		addValue(group, v.Elem())
	case reflect.String:
		c.value(textBits([]byte(v.String())))
	case reflect.Bool:
		if v.Bool() {
			c.value(1)
		} else {
			c.value(0)
		}
	case reflect.Int8, reflect.Int32:
		c.value(uint64(uint32(v.Int())))
	case reflect.Int64:
		c.value(uint64(v.Int()))
	case reflect.Float32:
		c.value(uint64(math.Float32bits(float32(v.Float()))))
	case reflect.Float64:
		c.value(math.Float64bits(v.Float()))
	case reflect.Slice:
		for i := range v.Len() {
			addValue(group, v.Index(i))
		}
	case reflect.Struct:
		addStruct(group, v)
	}
}

func addStruct(group []ColumnDigest, v reflect.Value) {
	at := 0
	for _, c := range columns(v.Type()) {
		if f := v.Field(c.index); !c.null || !isNull(f) {
			addValue(group[at:at+c.leaves], f)
		}
		at += c.leaves
	}
}
