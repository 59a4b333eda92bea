package event

import (
	"google.golang.org/protobuf/reflect/protoreflect"
)

// EachBlob calls f for every blob that an event names, wherever in it.
func EachBlob(e *Event, f func(*Blob)) { eachBlob(e.ProtoReflect(), f) }

func eachBlob(m protoreflect.Message, f func(*Blob)) {
	if b, ok := m.Interface().(*Blob); ok {
		f(b)
		return
	}
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil || d.IsMap():
		case d.IsList():
			for i := range v.List().Len() {
				eachBlob(v.List().Get(i).Message(), f)
			}
		default:
			eachBlob(v.Message(), f)
		}
		return true
	})
}
