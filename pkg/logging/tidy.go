// SPDX-License-Identifier: Apache-2.0

package logging

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// utc writes the time of a line in the format that objects have: RFC 3339, UTC, with milliseconds.
func utc(t time.Time, out zapcore.PrimitiveArrayEncoder) {
	out.AppendString(t.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// tidy writes each key of a line only once, because JSON readers differ in which of two equal keys they use. It keeps fields unencoded
// until a line is written.
type tidy struct {
	zapcore.Core
	fields []zapcore.Field
}

func (c *tidy) With(fields []zapcore.Field) zapcore.Core {
	return &tidy{c.Core, append(slices.Clip(c.fields), fields...)}
}

func (c *tidy) Check(entry zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(entry.Level) {
		return checked.AddCore(entry, c)
	}
	return checked
}

// whileStopping is the message with which controller-runtime's manager logs what its components return after it was stopped, such as the
// leader election that it ends itself.
const whileStopping = "error received after stop sequence was engaged"

func (c *tidy) Write(entry zapcore.Entry, fields []zapcore.Field) error {
	if entry.Message == whileStopping { // a normal stop is not an error
		entry.Level, entry.Message, entry.Stack = zapcore.InfoLevel, "A part ended while the process stops", ""
	}
	return c.Core.Write(entry, once(append(slices.Clip(c.fields), fields...)))
}

// own are the keys that every line has.
var own = []string{"level", "ts", "logger", "caller", "msg", "stacktrace"}

// once keeps the last field of each key.
func once(fields []zapcore.Field) []zapcore.Field {
	out := make([]zapcore.Field, 0, len(fields))
	for _, f := range fields {
		if slices.Contains(own, f.Key) {
			f.Key += "_"
		}
		f = explain(f)
		if i := slices.IndexFunc(out, func(o zapcore.Field) bool { return o.Key == f.Key }); i >= 0 {
			out[i] = f
		} else {
			out = append(out, f)
		}
	}
	return out
}

const (
	bareCancel = "context canceled"
	cancelled  = "canceled: its caller has left, or this process is ending"
)

// explain adds the meaning of a cancellation.
func explain(f zapcore.Field) zapcore.Field {
	switch f.Type {
	case zapcore.ErrorType:
		if err, ok := f.Interface.(error); ok && errors.Is(err, context.Canceled) {
			f.Interface = errors.New(strings.ReplaceAll(err.Error(), bareCancel, cancelled))
		}
	case zapcore.StringType:
		if strings.Contains(f.String, bareCancel) {
			f.String = strings.ReplaceAll(f.String, bareCancel, cancelled)
		}
	}
	return f
}
