import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/** Reads lines "NAME VERSION HEX", has Kafka's class of that name read the bytes, and prints what it writes. */
public class Again {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line; (line = lines.readLine()) != null; ) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            Class<?> kind = Class.forName("org.apache.kafka.common.message." + parts[0] + "Data");
            Message message = (Message) kind.getConstructor().newInstance();
            message.read(new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(parts[2]))), version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            out.append(HexFormat.of().formatHex(written.array())).append('\n');
        }
        System.out.print(out);
    }
}
