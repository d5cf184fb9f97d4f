package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"treadle/shared/kube"
)

// leftOut says why a field of a schema is not carried. A field that a new version of Karpenter adds is neither carried nor here and
// fails the test; so does one that goes, or one that is carried by now.
var leftOut = map[string]string{
	"NodePool.status.nodeClassObservedGeneration":         "registration health is judged without it",
	"NodePool.spec.template.spec.taints.timeAdded":        "no taint of a template has been added yet",
	"NodePool.spec.template.spec.startupTaints.timeAdded": "no taint of a template has been added yet",
	"NodeClaim.spec.taints.timeAdded":                     "no taint of a claim has been added yet",
	"NodeClaim.spec.startupTaints.timeAdded":              "no taint of a claim has been added yet",
}

func TestRun_WritesEveryDefinition(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "crds")
	require.NoError(t, run(out, io.Discard))
	for _, name := range []string{
		"karpenter.sh_nodepools.yaml", "karpenter.sh_nodeclaims.yaml", "karpenter.sh_nodeoverlays.yaml",
		"karpenter.k8s.aws_ec2nodeclasses.yaml", "autoscaling.x-k8s.io_capacitybuffers.yaml",
	} {
		kind, _ := definition(t, filepath.Join(out, name))
		require.NotEmpty(t, kind)
	}
	require.ErrorContains(t, run("", io.Discard), "no folder given")
}

func TestSchemas_AreCarriedOrLeftOutForAReason(t *testing.T) {
	t.Parallel()
	files, err := definitions()
	require.NoError(t, err)
	published, ours := map[string]string{}, map[string]string{}
	for _, path := range files {
		kind, schema := definition(t, path)
		value, carried := kube.Carried()[kind]
		if !carried {
			continue
		}
		schema.walk(kind, published)
		walk(kind, reflect.TypeOf(value), ours)
	}
	for path, kind := range published {
		if reason, out := leftOut[path]; out {
			require.Empty(t, ours[path], "%s is left out because %s, yet carried", path, reason)
			continue
		}
		require.Equal(t, kind, ours[path], "%s, empty where it is neither carried nor left out", path)
	}
	for path := range ours {
		if !strings.Contains(path, ".metadata.") || strings.Contains(path, ".spec.") {
			require.NotEmpty(t, published[path], "%s is carried, but no field of the schema", path)
		}
	}
	for path := range leftOut {
		require.NotEmpty(t, published[path], "%s is left out, but no field of the schema", path)
	}
}

// schema is what is read of an OpenAPI schema.
type schema struct {
	Type       string             `json:"type"`
	Format     string             `json:"format"`
	Properties map[string]*schema `json:"properties"`
	Items      *schema            `json:"items"`
	Additional any                `json:"additionalProperties"`
}

// definition reads the kind and the schema of the stored version of a definition.
func definition(t *testing.T, path string) (string, *schema) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var crd struct {
		Spec struct {
			Names    struct{ Kind string }
			Versions []struct {
				Storage bool
				Schema  struct{ OpenAPIV3Schema *schema }
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &crd))
	for _, v := range crd.Spec.Versions {
		if v.Storage {
			return crd.Spec.Names.Kind, v.Schema.OpenAPIV3Schema
		}
	}
	require.Fail(t, "no stored version", path)
	return "", nil
}

// walk notes the type of each field below spec and status by its path; lists count as their elements.
func (s *schema) walk(path string, into map[string]string) {
	for name, field := range s.Properties {
		at := path + "." + name
		for field.Type == "array" {
			field = field.Items
		}
		switch kind := field.Type; {
		case kind == "" || field.Additional != nil: // quantities, and maps of texts or of quantities
			into[at] = "text"
		case kind == "string" && field.Format == "date-time":
			into[at] = "time"
		case kind == "string":
			into[at] = "text"
		default:
			into[at] = kind
		}
		field.walk(at, into)
	}
}

// walk does the same for a Go type.
func walk(path string, kind reflect.Type, into map[string]string) {
	for _, field := range reflect.VisibleFields(kind) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous || name == "" {
			continue
		}
		at, of := path+"."+name, field.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		switch {
		case of == reflect.TypeFor[time.Time]():
			into[at] = "time"
		case of.Kind() == reflect.Struct:
			into[at] = "object"
			walk(at, of, into)
		case of.Kind() == reflect.Bool:
			into[at] = "boolean"
		case of.Kind() == reflect.String, of.Kind() == reflect.Map:
			into[at] = "text"
		default:
			into[at] = "integer"
		}
	}
}
