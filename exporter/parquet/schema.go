// Package parquet writes and reads Parquet files of Go structs: one row a
// struct, one column a field. It is the only package that knows Arrow.
//
// A field's tag names its column, as `col:"name"` or `col:"name,null"`. Columns
// are plain: strings, numbers, booleans, UTC timestamps in microseconds, and
// lists and structs of them. List elements are never null.
//
// What is written is chosen so that every reader gets it right; measurements of
// other choices are in the project's notes. Token ids are PLAIN, since zstd
// finds repeats over the rows of a group only where they keep their alignment;
// log probabilities are BYTE_STREAM_SPLIT; no dictionaries; data pages v1 of
// 4 MiB; zstd level 3; statistics for scalars only. Booleans are PLAIN: the
// RLE encoder of the library repeats pages.
package parquet

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// column is one field of a row struct.
type column struct {
	name  string
	index int
	null  bool
	typ   arrow.DataType
	// leaves is the number of Parquet columns that hold it.
	leaves int
}

// known holds the columns of each struct type that was met.
var known sync.Map

// columns returns the columns of a struct type, in order.
func columns(t reflect.Type) []column {
	if list, ok := known.Load(t); ok {
		return list.([]column)
	}
	var list []column
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("col"), ",")
		if name == "" {
			panic(fmt.Sprintf("parquet: field %s.%s names no column", t, f.Name))
		}
		typ := arrowType(f.Type)
		width := len(leaves("", []arrow.Field{{Name: name, Type: typ}}))
		list = append(list, column{name, i, options == "null", typ, width})
	}
	known.Store(t, list)
	return list
}

func schemaOf(cols []column) *arrow.Schema { return arrow.NewSchema(fields(cols), nil) }

func fields(cols []column) []arrow.Field {
	list := make([]arrow.Field, len(cols))
	for i, c := range cols {
		list[i] = arrow.Field{Name: c.name, Type: c.typ, Nullable: c.null}
	}
	return list
}

var timeType = reflect.TypeFor[time.Time]()

func arrowType(t reflect.Type) arrow.DataType {
	if t == timeType {
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	}
	switch t.Kind() {
	case reflect.String:
		return arrow.BinaryTypes.String
	case reflect.Bool:
		return arrow.FixedWidthTypes.Boolean
	case reflect.Int8:
		return arrow.PrimitiveTypes.Int8
	case reflect.Int32:
		return arrow.PrimitiveTypes.Int32
	case reflect.Int64:
		return arrow.PrimitiveTypes.Int64
	case reflect.Float32:
		return arrow.PrimitiveTypes.Float32
	case reflect.Float64:
		return arrow.PrimitiveTypes.Float64
	case reflect.Pointer:
		return arrowType(t.Elem())
	case reflect.Slice:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: arrowType(t.Elem())})
	case reflect.Struct:
		return arrow.StructOf(fields(columns(t))...)
	}
	panic(fmt.Sprintf("parquet: no column type for %s", t))
}

// isNull reports whether a field of a nullable column has no value: an empty
// string, a nil pointer or slice, a zero time. Numbers and booleans always have
// one.
func isNull(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return v.Len() == 0
	case reflect.Pointer, reflect.Slice:
		return v.IsNil()
	case reflect.Struct:
		return v.Type() == timeType && v.IsZero()
	default:
		return false
	}
}

// leaf is a column as Parquet stores it.
type leaf struct {
	path string
	// list is true for a list of numbers or strings.
	list bool
	typ  arrow.DataType
}

// leaves returns the leaf columns below columns, in the order of the file.
func leaves(prefix string, cols []arrow.Field) []leaf {
	var list []leaf
	for _, f := range cols {
		switch t := f.Type.(type) {
		case *arrow.ListType:
			path := prefix + f.Name + ".list.element"
			if s, ok := t.Elem().(*arrow.StructType); ok {
				list = append(list, leaves(path+".", s.Fields())...)
			} else {
				list = append(list, leaf{path, true, t.Elem()})
			}
		case *arrow.StructType:
			list = append(list, leaves(prefix+f.Name+".", t.Fields())...)
		default:
			list = append(list, leaf{prefix + f.Name, false, t})
		}
	}
	return list
}
