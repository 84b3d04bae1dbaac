// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	federationv1 "navix.sh/atoll/api/federation/v1"
	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
)

const (
	// maxScan bounds how many records one page reads. maxBytes bounds its size, except for its first record.
	maxScan  = 5000
	scanPage = 250
	maxBytes = 512 << 10
)

// List returns up to limit matching records whose id sorts after a given one, ordered by id. If there may be more, next is the position up
// to which it has searched. A page can be short or empty and still have a next position.
func (h *History) List(
	ctx context.Context, after string, limit int, match func(*sandboxv1.Sandbox) bool,
) (page []*sandboxv1.Sandbox, next string, err error) {
	looked, size := 0, 0
	cursor := recordPrefix + after
	for looked < maxScan {
		entries, err := h.opts.Store.Range(ctx, recordPrefix, cursor, scanPage)
		if err != nil {
			return nil, "", fmt.Errorf("reading the history: %w", err)
		}
		for _, e := range entries {
			id := strings.TrimPrefix(e.Key, recordPrefix)
			ended := &federationv1.EndedSandbox{}
			if err := wrapRead(id, proto.Unmarshal(e.Value, ended)); err != nil {
				return nil, "", err
			}
			if match(ended.GetSandbox()) {
				size += len(e.Value)
				if len(page) == limit || len(page) > 0 && size > maxBytes {
					return page, strings.TrimPrefix(cursor, recordPrefix), nil
				}
				page = append(page, ended.GetSandbox())
			}
			cursor = e.Key
		}
		if len(entries) < scanPage {
			return page, "", nil
		}
		looked += len(entries)
	}
	return page, strings.TrimPrefix(cursor, recordPrefix), nil
}

// toValidUTF8 makes all text of a record valid UTF-8.
func toValidUTF8(record *sandboxv1.Sandbox) {
	m := record.ProtoReflect()
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap() && field.MapValue().Kind() == protoreflect.StringKind:
			texts := map[string]string{}
			value.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				texts[valid(k.String())] = valid(v.String())
				return true
			})
			m.Clear(field)
			for k, v := range texts {
				m.Mutable(field).Map().Set(protoreflect.ValueOfString(k).MapKey(), protoreflect.ValueOfString(v))
			}
		case field.Kind() == protoreflect.StringKind && !field.IsList() && !field.IsMap():
			m.Set(field, protoreflect.ValueOfString(valid(value.String())))
		}
		return true
	})
}

func valid(text string) string { return strings.ToValidUTF8(text, "�") }
