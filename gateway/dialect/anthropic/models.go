package anthropic

import (
	"time"

	"turnlog.dev/gateway"
	"turnlog.dev/schema/rawjson"
)

// AppendModels appends the list of models, all on one page.
func AppendModels(dst []byte, models *gateway.Models) []byte {
	list := models.List()
	dst = append(dst, `{"data":[`...)
	for i, m := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m)
	}
	dst = append(dst, `],"has_more":false`...)
	if len(list) == 0 {
		return append(dst, `,"first_id":null,"last_id":null}`...)
	}
	dst = rawjson.AppendText(append(dst, `,"first_id":`...), list[0].Name)
	return append(rawjson.AppendText(append(dst, `,"last_id":`...), list[len(list)-1].Name), '}')
}

// AppendModel appends one model.
func AppendModel(dst []byte, m *gateway.Model) []byte {
	dst = rawjson.AppendText(append(dst, `{"type":"model","id":`...), m.Name)
	dst = rawjson.AppendText(append(dst, `,"display_name":`...), m.Name)
	dst = time.Unix(m.Created, 0).UTC().AppendFormat(append(dst, `,"created_at":"`...), time.RFC3339)
	return append(dst, `"}`...)
}
