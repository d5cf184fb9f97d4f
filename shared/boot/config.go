package boot

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"time"
)

// Load fills the struct that cfg points to from the environment: a field tagged `env:"NAME"` takes the variable NAME. Fields
// may be string, int, bool or time.Duration. A field also tagged `default:"…"` takes that value where the variable is not
// set or empty; any other is required. The error lists every variable that is missing or cannot be parsed, not just the first.
func Load(cfg any) error { return load(cfg, os.Getenv) }

func load(cfg any, getenv func(string) string) error {
	v := reflect.ValueOf(cfg).Elem()
	var errs []error
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, tagged := field.Tag.Lookup("env")
		if !tagged {
			continue
		}
		text := getenv(name)
		if text == "" {
			fallback, has := field.Tag.Lookup("default")
			if !has {
				errs = append(errs, fmt.Errorf("setting %s: not set", name))
				continue
			}
			text = fallback
		}
		if err := set(v.Field(i), text); err != nil {
			errs = append(errs, fmt.Errorf("setting %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func set(v reflect.Value, text string) error {
	if text == "" && v.Kind() == reflect.String {
		return nil
	}
	switch v.Interface().(type) {
	case string:
		v.SetString(text)
	case int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
		v.SetInt(int64(n))
	case bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		v.SetBool(b)
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration such as 45s", text)
		}
		v.SetInt(int64(d))
	default:
		return fmt.Errorf("field of type %s is not supported", v.Type())
	}
	return nil
}
