package bench;

import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.databind.ObjectWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.function.Function;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/** Typed JSON by Jackson, its readers and writers made once per task. */
final class Json {
    static final ObjectMapper MAPPER =
            new ObjectMapper().configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);

    interface KeyOf<T> extends Function<T, String>, java.io.Serializable {}

    private Json() {}

    static final class Reader<T> implements KafkaRecordDeserializationSchema<T> {
        private final Class<T> type;
        private transient ObjectReader reader;

        Reader(Class<T> type) {
            this.type = type;
        }

        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<T> out) throws IOException {
            if (reader == null) {
                reader = MAPPER.readerFor(type);
            }
            out.collect(reader.readValue(record.value()));
        }

        @Override
        public TypeInformation<T> getProducedType() {
            return TypeInformation.of(type);
        }
    }

    static final class Writer<T> implements KafkaRecordSerializationSchema<T> {
        private final Class<T> type;
        private final KeyOf<T> key;
        private final String topic = Settings.output();
        private transient ObjectWriter writer;

        Writer(Class<T> type, KeyOf<T> key) {
            this.type = type;
            this.key = key;
        }

        @Override
        public void open(SerializationSchema.InitializationContext context, KafkaSinkContext sink) {
            writer = MAPPER.writerFor(type);
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(T value, KafkaSinkContext sink, Long timestamp) {
            try {
                return new ProducerRecord<>(topic, key.apply(value).getBytes(StandardCharsets.UTF_8), writer.writeValueAsBytes(value));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
