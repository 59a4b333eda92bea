package openaichat

import (
	"strconv"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/rawjson"
)

// AppendModels appends the list of models.
func AppendModels(dst []byte, models *gateway.Models) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models.List() {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m)
	}
	return append(dst, "]}"...)
}

// AppendModel appends one model.
func AppendModel(dst []byte, m *gateway.Model) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), m.Name)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), m.Created, 10)
	dst = append(dst, `,"owned_by":"turnlog"`...)
	if m.ContextLength > 0 {
		dst = strconv.AppendInt(append(dst, `,"max_model_len":`...), int64(m.ContextLength), 10)
	}
	return append(dst, '}')
}
