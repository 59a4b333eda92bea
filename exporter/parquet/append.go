package parquet

import (
	"fmt"
	"reflect"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// appendValue appends a field's value to the builder of its column.
func appendValue(b array.Builder, v reflect.Value, null bool) {
	if null && isNull(v) {
		b.AppendNull()
		return
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch b := b.(type) {
	case *array.StringBuilder:
		b.Append(v.String())
	case *array.BooleanBuilder:
		b.Append(v.Bool())
	case *array.Int8Builder:
		b.Append(int8(v.Int()))
	case *array.Int32Builder:
		b.Append(int32(v.Int()))
	case *array.Int64Builder:
		b.Append(v.Int())
	case *array.Float32Builder:
		b.Append(float32(v.Float()))
	case *array.Float64Builder:
		b.Append(v.Float())
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.Interface().(time.Time).UnixMicro()))
	case *array.ListBuilder:
		b.Append(true)
		appendElements(b.ValueBuilder(), v)
	case *array.StructBuilder:
		b.Append(true)
		for i, c := range columns(v.Type()) {
			appendValue(b.FieldBuilder(i), v.Field(c.index), c.null)
		}
	default:
		panic(fmt.Sprintf("parquet: no builder for %T", b))
	}
}

// appendElements appends a slice's elements; those of per-token columns at once.
func appendElements(b array.Builder, list reflect.Value) {
	switch b := b.(type) {
	case *array.Int8Builder:
		b.AppendValues(list.Interface().([]int8), nil)
	case *array.Int32Builder:
		b.AppendValues(list.Interface().([]int32), nil)
	case *array.Float32Builder:
		b.AppendValues(list.Interface().([]float32), nil)
	default:
		for i := range list.Len() {
			appendValue(b, list.Index(i), false)
		}
	}
}
