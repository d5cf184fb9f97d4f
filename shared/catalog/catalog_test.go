package catalog_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"treadle/shared/catalog"
	"treadle/shared/cluster"
)

// region is a catalogue as large as that of us-east-1: 1,339 types in up to six zones.
func region() catalog.Catalog {
	c := catalog.Catalog{Region: "us-east-1", MadeUnix: 1_800_000_000}
	for i := range 1339 {
		t := m5Large()
		t.Name = fmt.Sprintf("m%04d.%dxlarge", i, i%24)
		t.VCPU, t.OnDemandMicroUSDPerHour = int64(i%192+1), int64(i)*1000
		t.Zones = nil
		for z := range 3 + i%4 {
			t.Zones = append(t.Zones, catalog.Zone{Name: "us-east-1" + string(rune('a'+z)), SpotMicroUSDPerHour: int64(i*337 + z)})
		}
		if i%20 == 0 {
			t.GPUs = g5().GPUs
		}
		c.Types = append(c.Types, t)
	}
	return c
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, err := z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return out.Bytes()
}

func TestDecode_ReturnsWhatWasEncoded(t *testing.T) {
	t.Parallel()
	want := region()
	body, err := catalog.Encode(want)
	require.NoError(t, err)
	again, err := catalog.Encode(want)
	require.NoError(t, err)
	require.Equal(t, body, again)
	got, err := catalog.Decode(body)
	require.NoError(t, err)
	want.Format = catalog.Format
	require.Equal(t, want, got)
}

func TestDecode_IsStrict(t *testing.T) {
	t.Parallel()
	good, err := catalog.Encode(catalog.Catalog{Types: []catalog.Type{m5Large()}})
	require.NoError(t, err)
	for name, body := range map[string][]byte{
		"nothing":                   nil,
		"no gzip":                   []byte(`{"format":1}`),
		"cut off":                   good[:len(good)-9],
		"no JSON":                   gzipped(t, "hello"),
		"another format":            gzipped(t, `{"format":2,"region":"r","made":1,"types":[]}`),
		"a field that nobody knows": gzipped(t, `{"format":1,"region":"r","made":1,"types":[],"more":1}`),
		"text after the end":        gzipped(t, `{"format":1,"region":"r","made":1,"types":[]} {}`),
		"types out of order":        gzipped(t, `{"format":1,"types":[{"name":"b","arch":"amd64","vcpu":1,"mib":1},{"name":"a","arch":"amd64","vcpu":1,"mib":1}]}`),
		"a type twice":              gzipped(t, `{"format":1,"types":[{"name":"a","arch":"amd64","vcpu":1,"mib":1},{"name":"a","arch":"amd64","vcpu":1,"mib":1}]}`),
		"a strange architecture":    gzipped(t, `{"format":1,"types":[{"name":"a","arch":"i386","vcpu":1,"mib":1}]}`),
		"a type without memory":     gzipped(t, `{"format":1,"types":[{"name":"a","arch":"amd64","vcpu":1}]}`),
		"a negative price":          gzipped(t, `{"format":1,"types":[{"name":"a","arch":"amd64","vcpu":1,"mib":1,"price":-1}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Decode(body)
			require.ErrorIs(t, err, catalog.ErrFormat)
		})
	}
}

func TestInstanceTypes_LeavesItsArgumentsAlone(t *testing.T) {
	t.Parallel()
	c, k := region(), class()
	before, beforeClass := region(), class()
	types := catalog.InstanceTypes(c, k, catalog.Options{})
	require.True(t, slices.EqualFunc(types, catalog.InstanceTypes(c, k, catalog.Options{}), func(a, b cluster.InstanceType) bool {
		return fmt.Sprint(a) == fmt.Sprint(b)
	}), "the same question has the same answer")
	require.Equal(t, before, c)
	require.Equal(t, beforeClass, k)
}

func BenchmarkDecode(b *testing.B) {
	body, err := catalog.Encode(region())
	require.NoError(b, err)
	b.ReportMetric(float64(len(body)), "bytes")
	b.ReportAllocs()
	var live runtime.MemStats
	for b.Loop() {
		c, err := catalog.Decode(body)
		require.NoError(b, err)
		runtime.KeepAlive(c)
	}
	runtime.ReadMemStats(&live)
	b.ReportMetric(float64(live.HeapSys)/(1<<20), "MiB-heap")
}

func BenchmarkInstanceTypes(b *testing.B) {
	c, k := region(), class()
	b.ReportAllocs()
	for b.Loop() {
		require.Len(b, catalog.InstanceTypes(c, k, catalog.Options{}), len(c.Types))
	}
}
