package parquet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

// ErrSchema says that a file lacks a column, or has it with another type.
var ErrSchema = errors.New("parquet: another schema")

// Input is a file to read: an *os.File, or a reader of bytes.
type Input interface {
	io.ReaderAt
	io.Seeker
}

// Read yields the row groups of a file as rows T, reading only T's columns. T
// has no structs but times. It ends after an error, which wraps ErrSchema or
// ErrCorrupt.
func Read[T any](ctx context.Context, r Input) iter.Seq2[[]*T, error] {
	return func(yield func([]*T, error) bool) {
		err := read(ctx, r, yield)
		if err != nil {
			yield(nil, err)
		}
	}
}

func read[T any](ctx context.Context, r Input, yield func([]*T, error) bool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCorrupt, p)
		}
	}()
	pf, err := file.NewParquetReader(r)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{}, memory.NewGoAllocator())
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	cols := columns(reflect.TypeFor[T]())
	indices, err := leafIndices(pf, fr, cols)
	if err != nil {
		return err
	}
	for g := range pf.NumRowGroups() {
		table, err := fr.ReadRowGroups(ctx, indices, []int{g})
		if err != nil {
			return fmt.Errorf("%w: row group %d: %w", ErrCorrupt, g, err)
		}
		rows := make([]*T, table.NumRows())
		for i := range rows {
			rows[i] = new(T)
		}
		for _, c := range cols {
			i := table.Schema().FieldIndices(c.name)[0]
			at := 0
			for _, chunk := range table.Column(i).Data().Chunks() {
				for j := range chunk.Len() {
					if !chunk.IsNull(j) {
						setValue(reflect.ValueOf(rows[at]).Elem().Field(c.index), chunk, j)
					}
					at++
				}
			}
		}
		table.Release()
		if !yield(rows, nil) {
			return nil
		}
	}
	return nil
}

// leafIndices returns the leaf columns of a file that hold cols.
func leafIndices(pf *file.Reader, fr *pqarrow.FileReader, cols []column) ([]int, error) {
	schema, err := fr.Schema()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	var indices []int
	for _, c := range cols {
		f, ok := schema.FieldsByName(c.name)
		if !ok || !arrow.TypeEqual(f[0].Type, c.typ) {
			return nil, fmt.Errorf("%w: column %s of type %s", ErrSchema, c.name, c.typ)
		}
		for _, l := range leaves("", []arrow.Field{{Name: c.name, Type: c.typ}}) {
			indices = append(indices, pf.MetaData().Schema.ColumnIndexByName(l.path))
		}
	}
	slices.Sort(indices)
	return indices, nil
}

// setValue sets a field to what an array holds at i.
func setValue(v reflect.Value, a arrow.Array, i int) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch a := a.(type) {
	case *array.String:
		v.SetString(string([]byte(a.Value(i)))) // not a view of the row group
	case *array.Boolean:
		v.SetBool(a.Value(i))
	case *array.Int8:
		v.SetInt(int64(a.Value(i)))
	case *array.Int32:
		v.SetInt(int64(a.Value(i)))
	case *array.Int64:
		v.SetInt(a.Value(i))
	case *array.Float32:
		v.SetFloat(float64(a.Value(i)))
	case *array.Float64:
		v.SetFloat(a.Value(i))
	case *array.Timestamp:
		v.Set(reflect.ValueOf(time.UnixMicro(int64(a.Value(i))).UTC()))
	case *array.List:
		setList(v, a, i)
	default:
		panic(fmt.Sprintf("no field for %T", a))
	}
}

func setList(v reflect.Value, a *array.List, i int) {
	start, end := a.ValueOffsets(i)
	switch values := a.ListValues().(type) {
	case *array.Int8:
		v.Set(reflect.ValueOf(cut(values.Int8Values(), start, end)))
	case *array.Int32:
		v.Set(reflect.ValueOf(cut(values.Int32Values(), start, end)))
	case *array.Float32:
		v.Set(reflect.ValueOf(cut(values.Float32Values(), start, end)))
	default:
		v.Set(reflect.MakeSlice(v.Type(), int(end-start), int(end-start)))
		for j := start; j < end; j++ {
			setValue(v.Index(int(j-start)), values, int(j))
		}
	}
}

func cut[T any](values []T, start, end int64) []T {
	return append(make([]T, 0, end-start), values[start:end]...)
}
