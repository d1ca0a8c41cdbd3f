// Runs a connector in Debezium's embedded engine and prints each record as a line of JSON, with key, value and headers as the
// bytes that Kafka Connect would send. Groovy and not Java: it needs no compiler beside the runtime.
import com.fasterxml.jackson.databind.ObjectMapper
import io.debezium.embedded.Connect
import io.debezium.engine.DebeziumEngine
import org.apache.kafka.connect.source.SourceRecord

def json = new ObjectMapper()
Map<String, String> config = json.readValue(new File(args[0]), Map)

// Kafka Connect converts what the engine hands over as it is.
def under = { String prefix ->
  config.findAll { it.key.startsWith(prefix) }.collectEntries { [it.key.substring(prefix.length()), it.value] }
}
def converter = { String name -> Class.forName(config[name]).getDeclaredConstructor().newInstance() }
def keys = converter('key.converter')
keys.configure(under('key.converter.'), true)
def values = converter('value.converter')
values.configure(under('value.converter.'), false)
def headers = converter('header.converter')
headers.configure(under('header.converter.') + ['converter.type': 'header'])

def text = { byte[] bytes -> bytes == null ? null : bytes.encodeBase64().toString() }
def print = { SourceRecord r ->
  System.out.println(json.writeValueAsString([
    topic  : r.topic(),
    key    : text(keys.fromConnectData(r.topic(), r.keySchema(), r.key())),
    value  : text(values.fromConnectData(r.topic(), r.valueSchema(), r.value())),
    headers: r.headers().collect { h -> [h.key(), text(headers.fromConnectHeader(r.topic(), h.key(), h.schema(), h.value()))] },
  ]))
}

def properties = new Properties()
properties.putAll(config)
def engine = DebeziumEngine.create(Connect)
  .using(properties)
  .notifying(new DebeziumEngine.ChangeConsumer() {
    void handleBatch(List events, DebeziumEngine.RecordCommitter committer) {
      for (event in events) {
        print(event.value())
        committer.markProcessed(event)
      }
      System.out.flush()
      committer.markBatchFinished()
    }
  })
  .using({ boolean ok, String message, Throwable error ->
    System.err.println("the engine ended: $message")
    error?.printStackTrace()
    Runtime.runtime.halt(ok ? 0 : 1)
  } as DebeziumEngine.CompletionCallback)
  .build()
Runtime.runtime.addShutdownHook(new Thread({ engine.close() }))
engine.run()
